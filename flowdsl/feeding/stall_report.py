"""The stall report: describes what a run is doing while its consumer waits."""

from __future__ import annotations

import sys
import sysconfig
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def activity_of(run: Run[Any], thread: threading.Thread) -> str:
    """Describe what a run is doing, for a message; ``thread`` iterates the run."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and _is_in_library(frame):
        frame = frame.f_back
    if frame is not None:
        code = frame.f_code
        return f"the flow is in {code.co_name}, line {frame.f_lineno} of {code.co_filename}"
    busy = [
        f"{stage.in_flight} element(s) are with the workers of {' '.join(stage.operators)}"
        for stage in run.statistics().stages
        if stage.workers and stage.in_flight
    ]
    return ", ".join(busy) or "the flow has not yielded it"


def _is_in_library(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith((_PACKAGE, *_LIBRARIES, "<frozen"))

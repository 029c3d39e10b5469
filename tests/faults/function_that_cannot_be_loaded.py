"""An argument can be sent to a worker, and fails when it is loaded there.

The error names the operator and its argument, and suggests a correction. No element is lost, since
none has been computed.
"""

from __future__ import annotations

from typing import Any

import flowdsl as fl


class Model:
    """It loads its weights when it is unpickled, on a device that only the program has."""

    def __call__(self, text: str) -> str:
        return text

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("no device is left")

    def __getstate__(self) -> Any:
        return {"weights": 1}


fl.from_range(3).map(str).map(Model()).batch(2).prefetch(procs=2).collect()

# Seen:
# flowdsl.errors.NotShippable: map(Model): func cannot be loaded by a worker process:
# RuntimeError('no device is left'); make what it needs inside the function, or run without
# prefetch(procs=...)

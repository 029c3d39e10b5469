"""Functions that end the worker that calls them: a process, or a thread in its place."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.chaos.faults import in_consumer, mortal


def kill() -> None:
    worker = getattr(mortal, "worker", None)
    if worker is not None:
        worker.die("kill")
    os.kill(os.getpid(), signal.SIGKILL)


def dies_once(folder: Path, *rows: int, end: Callable[[], None] = kill) -> Callable[[Any], Any]:
    """A function that returns its argument; the first worker that gets one of the rows ends.

    In the consumer's own thread it does nothing: there, a flow means what it means.
    """
    consumer = os.getpid()

    def func(x: Any) -> Any:
        for row in rows:
            if row in np.ravel(x) and not in_consumer(consumer) and first(folder / str(row)):
                end()
        return x

    return func


def first(mark: Path) -> bool:
    """Return True if this marker file was not created before."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kills(*rows: int) -> Callable[[Any], Any]:
    """A function that returns its argument; every worker that gets one of these rows dies."""

    def func(x: Any) -> Any:
        if any(row in np.ravel(x) for row in rows):
            kill()
        return x

    return func

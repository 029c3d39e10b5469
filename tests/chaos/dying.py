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
    """A function that gives what it is given; the first worker that meets a row in it ends.

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
    """Whether nobody made this mark before."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kills(*rows: int) -> Callable[[Any], Any]:
    """A function that gives what it is given; every worker that meets one of these rows dies."""

    def func(x: Any) -> Any:
        if any(row in np.ravel(x) for row in rows):
            kill()
        return x

    return func

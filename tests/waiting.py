"""Waiting for other processes and for timings, on a machine that may be busy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def eventually(true: Callable[[], bool], seconds: float = 60) -> bool:
    """Poll until a condition holds; the time limit only ends a failing test."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.01)
    return true()


def waits(pid: int) -> bool:
    """Return True if the main thread of a process has been idle for a while."""
    states = set[str]()
    for _ in range(20):
        states.add(state_of(pid))
        time.sleep(0.005)
    return states == {"S"}


def state_of(pid: int) -> str:
    """Return the state of a process: ``S`` if it sleeps, ``T`` if a signal has stopped it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def meet(folder: Path, count: int) -> None:
    """Wait, in a function of a flow, until this many processes have called this."""
    (folder / str(os.getpid())).touch()
    assert eventually(lambda: len(os.listdir(folder)) >= count)


def soonest(attempt: Callable[[], float], goal: float, times: int = 6) -> float:
    """Return the minimum of some attempts, in seconds or error, stopping below the goal.

    Others on the machine make any of them late; what waits for no reason is late every time.
    """
    least = attempt()
    while least >= goal and times > 1:
        times, least = times - 1, min(least, attempt())
    return least

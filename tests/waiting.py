"""Waiting for other processes and for timings, on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(true: Callable[[], bool], seconds: float = 60) -> bool:
    """Poll until a condition holds; the time limit only ends a failing test."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.01)
    return true()


def soonest(attempt: Callable[[], float], goal: float, times: int = 6) -> float:
    """Return the minimum of some attempts, in seconds or error, stopping below the goal.

    Others on the machine make any of them late; what waits for no reason is late every time.
    """
    least = attempt()
    while least >= goal and times > 1:
        times, least = times - 1, min(least, attempt())
    return least

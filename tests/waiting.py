"""Waiting for others, on a machine that may be busy with something else."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(true: Callable[[], bool], seconds: float = 60) -> bool:
    """Poll for what another process is about to do; the bound only ends a failing test."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.01)
    return true()


def soonest(attempt: Callable[[], float], goal: float, times: int = 6) -> float:
    """The least of what some attempts give, seconds or an error, up to one below the goal.

    Others on the machine make any of them late; what waits for no reason is late every time.
    """
    least = attempt()
    while least >= goal and times > 1:
        times, least = times - 1, min(least, attempt())
    return least

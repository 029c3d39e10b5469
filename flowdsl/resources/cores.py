"""The number of processes that can compute at the same time."""

from __future__ import annotations

import math
import os

_QUOTA = "/sys/fs/cgroup/cpu.max"


def cores(quota: str | os.PathLike[str] = _QUOTA) -> int:
    """The number of cores this process may use, by its CPU affinity and its container's quota.

    >>> cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    else:
        available = os.cpu_count() or 1
    try:
        with open(quota) as file:
            most, period = file.read().split()
        return max(1, min(available, math.ceil(int(most) / int(period))))
    except (OSError, ValueError):  # no such file, or no limit: "max 100000"
        return available

"""The reference workloads, in whose time all costs are given, and the clock of a turn.

A change of a workload would change every ratio, so it needs another ``VERSION``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

VERSION = 1
"""The version of the workloads, which files of costs name."""

_VECTOR = np.arange(64, dtype=np.float32)
_IN_CACHE = np.zeros(1 << 16, np.uint8)
_IN_MEMORY = np.zeros(1 << 22, np.uint8)
_PAGE = b"x" * 4096


def computing() -> None:
    """About a millisecond of what operators do: Python, small arrays, memory in the cache."""
    total = 0
    for i in range(1500):
        row = {"pair": (i, i), "single": (i,)}
        total += len(row["pair"]) + row["single"][0]
    for i in range(125):
        np.maximum(_VECTOR * 0.5 + i, 0)
    for _ in range(20):
        _IN_CACHE.copy().sum(dtype=np.uint64)


def moving() -> None:
    """About a millisecond of what transport does: copies, and calls of the system."""
    for _ in range(20):
        _IN_CACHE.copy()
    for _ in range(2):
        _IN_MEMORY.copy()
    ends = os.pipe()
    for _ in range(100):
        os.write(ends[1], _PAGE)
        os.read(ends[0], len(_PAGE))
    for end in ends:
        os.close(end)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Run some work; return its seconds, and the share of them that it waited for a core.

    The seconds are those on a core, and those of waiting for anything else, such as a file.
    """
    waited = _waited()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    share = min(1.0, (_waited() - waited) / seconds)
    return seconds * (1 - share), share


def _waited() -> float:
    """The seconds for which this thread was ready to run, and waited for a core."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):  # only Linux counts it
        return 0.0

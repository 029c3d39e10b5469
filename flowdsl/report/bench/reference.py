"""The reference workload, in whose time all costs are given, and the clock of a turn.

A change of the workload would change every ratio, so it needs another ``VERSION``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle

import numpy as np

VERSION = 1
"""The version of the workload, which files of costs name."""

_VECTOR = np.arange(64, dtype=np.float32)
_IN_CACHE = np.zeros(1 << 16, np.uint8)


_COPIED = 1 << 21
_FROM, _TO = np.zeros(1 << 24, np.uint8), np.ones(1 << 24, np.uint8)
_starts = cycle(range(0, len(_FROM), _COPIED))

_MOST_WAITED = 0.95
"""The greatest share of waiting that is left out: the system counts a wait when it ends, so that it
may be longer than the time in which it is seen."""


def reference() -> None:
    """About a millisecond of Python, small arrays, and memory in the cache."""
    total = 0
    for i in range(1500):
        row = {"pair": (i, i), "single": (i,)}
        total += len(row["pair"]) + row["single"][0]
    for i in range(125):
        np.maximum(_VECTOR * 0.5 + i, 0)
    for _ in range(20):
        _IN_CACHE.copy().sum(dtype=np.uint64)


def memory() -> None:
    """Some tenths of a millisecond of copying in memory that no cache of a core holds."""
    start = next(_starts)
    np.copyto(_TO[start : start + _COPIED], _FROM[start : start + _COPIED])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Run some work; return its seconds, and the share of them that it waited for a core.

    The seconds are those on a core, and those of waiting for anything else, such as a file.
    """
    waited = _waited()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    share = min(_MOST_WAITED, (_waited() - waited) / seconds)
    return seconds * (1 - share), share


def _waited() -> float:
    """The seconds for which this thread was ready to run, and waited for a core."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):  # only Linux counts it
        return 0.0

"""The reference workload, whose time is the unit of all costs, and the clock of a turn.

A change of the workload would change every ratio, so it needs another ``VERSION``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle

import numpy as np

from flowdsl.resources.core_waits import waited_for_core

VERSION = 1
"""The version of the workload, which files of costs name."""

_VECTOR = np.arange(64, dtype=np.float32)
_IN_CACHE = np.zeros(1 << 16, np.uint8)

_COPIED = 1 << 21
_FROM, _TO = np.zeros(1 << 24, np.uint8), np.ones(1 << 24, np.uint8)
_starts = cycle(range(0, len(_FROM), _COPIED))

_MOST_WAITED = 0.95
"""The limit on the share of waiting that is subtracted. The system counts a wait when it ends, so a
wait may have begun before the work, and be longer than the work."""


def reference() -> None:
    """Compute for about a millisecond: Python, small arrays, and memory in the cache."""
    total = 0
    for i in range(1500):
        row = {"pair": (i, i), "single": (i,)}
        total += len(row["pair"]) + row["single"][0]
    for i in range(125):
        np.maximum(_VECTOR * 0.5 + i, 0)
    for _ in range(20):
        _IN_CACHE.copy().sum(dtype=np.uint64)


def memory() -> None:
    """Copy for some tenths of a millisecond, in memory that does not fit into a core's cache."""
    start = next(_starts)
    np.copyto(_TO[start : start + _COPIED], _FROM[start : start + _COPIED])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Run some work; return its seconds without waiting for a core, and the share of that waiting.

    Waiting for anything else, such as a file, is part of the seconds.
    """
    waited = waited_for_core()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    share = min(_MOST_WAITED, (waited_for_core() - waited) / seconds)
    return seconds * (1 - share), share

"""The reference workload, whose time is the unit of all costs, and the clock of a turn.

It consists of several kinds of work. When a core is slowed down, by another program or by the host
of a virtual machine, some kinds become slower than others. So each kind is timed on its own: where
one has become slower than the reference as a whole, an operator of this kind has, too.

A change of the workload would change every ratio, so it needs another ``VERSION``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count, cycle

import numpy as np

from flowdsl.resources.core_waits import waited_for_core

VERSION = 2
"""The version of the workload, which files of costs name."""

_VECTOR = np.arange(64, dtype=np.float32)
_IN_CACHE = np.zeros(1 << 16, np.uint8)

_COPIED = 1 << 21
_FROM, _TO = np.zeros(1 << 24, np.uint8), np.ones(1 << 24, np.uint8)
_starts = cycle(range(0, len(_FROM), _COPIED))
_seeds = count()
_MORE_THAN_CACHES = 1 << 26

_MOST_WAITED = 0.95
"""The limit on the share of waiting that is subtracted. The system counts a wait when it ends, so a
wait may have begun before the work, and be longer than the work."""


def _python() -> None:
    total = 0
    for i in range(1500):
        row = {"pair": (i, i), "single": (i,)}
        total += len(row["pair"]) + row["single"][0]


def _arrays() -> None:
    for i in range(125):
        np.maximum(_VECTOR * 0.5 + i, 0)


def _cached() -> None:
    for _ in range(20):
        _IN_CACHE.copy().sum(dtype=np.uint64)


def _generators() -> None:
    # Much code for little data: it is slow where caches of instructions are shared.
    for _ in range(30):
        np.random.default_rng(next(_seeds)).random(4)


def _memory() -> None:
    start = next(_starts)
    np.copyto(_TO[start : start + _COPIED], _FROM[start : start + _COPIED])


REFERENCE: Mapping[str, Callable[[], None]] = {
    "loops of Python": _python,
    "small arrays": _arrays,
    "copies in the cache": _cached,
}
"""The kinds of work of the reference, of about a millisecond in all."""

MEMORY = "copies in memory"

OTHERS: Mapping[str, Callable[[], None]] = {"random generators": _generators, MEMORY: _memory}
"""Further kinds of work, of some tenths of a millisecond each."""


def copy_memory(ends: Callable[[], bool]) -> None:
    """Copy memory, more than caches hold, until ``ends()``."""
    origin, target = np.zeros(_MORE_THAN_CACHES, np.uint8), np.ones(_MORE_THAN_CACHES, np.uint8)
    while not ends():
        np.copyto(target, origin)


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

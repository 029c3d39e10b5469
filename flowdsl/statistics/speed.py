"""Measure the speed at which a flow delivers elements to its consumer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import attrs
import numpy as np

from flowdsl.elements.structure import leaves
from flowdsl.errors import FlowError

_BLOCK_SECONDS = 0.02
_MAX_PER_BLOCK = 256
"""Elements are timed in blocks, which end after this time or number of elements."""


@attrs.frozen
class Speed:
    """The result of ``flow.measure``."""

    elements: int
    """The number of elements that were timed."""
    seconds: float
    """Seconds from requesting the first timed element to receiving the last."""
    nbytes: int
    """The size of the elements: arrays, NumPy scalars, bytes and text; other values count as 0."""

    @property
    def rate(self) -> float:
        """Elements per second."""
        return self.elements / self.seconds

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.rate:,.0f} elements/s, {self.bandwidth / 1e6:,.1f} MB/s "
            f"({self.elements:,} in {self.seconds:.3g} s)"
        )


def measure(elements: Iterator[object], size: int, warmup: int) -> Speed:
    """Time up to ``size`` elements, after ``warmup`` elements that are not timed.

    Raises:
        FlowError: There are no elements to time.
    """
    warmed = sum(1 for _ in islice(elements, warmup))
    timed, nbytes, seconds = 0, 0, 0.0
    while timed < size:
        block, spent = _timed(elements, min(size - timed, _MAX_PER_BLOCK))
        if not block:
            break
        seconds += spent
        timed += len(block)
        nbytes += sum(map(_nbytes, block))  # outside of the time that is measured
    if not timed and not warmed:
        raise FlowError("measure: the flow has no elements, so there is nothing to time")
    if not timed:
        raise FlowError(
            f"measure: the pass ended after {warmed} elements, with a warmup of {warmup}; there is "
            f"nothing to time. Measure flow.repeat(), or use a smaller warmup"
        )
    return Speed(timed, seconds, nbytes)


def _timed(elements: Iterator[object], most: int) -> tuple[list[object], float]:
    """A block of at most ``most`` elements, and the seconds that they took."""
    block: list[object] = []
    began = now = time.perf_counter()
    while len(block) < most and now - began < _BLOCK_SECONDS:
        element = next(elements, _END)
        now = time.perf_counter()
        if element is _END:
            break
        block.append(element)
    return block, now - began


_END = object()


def _nbytes(element: object) -> int:
    return sum(_size(leaf) for leaf in leaves(element))


def _size(leaf: object) -> int:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return int(leaf.nbytes)
    if isinstance(leaf, list):
        return sum(map(_nbytes, leaf))
    return len(leaf) if isinstance(leaf, (bytes, str)) else 0

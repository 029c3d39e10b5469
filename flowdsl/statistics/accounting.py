"""Accounting: the counts of the elements that enter a stage, and of those that leave it.

Entered elements are counted when tasks are submitted, delivered elements when the consumer receives
them, and left-out elements by the workers, which report the number with each result. As the counts
are independent, they balance only if no element was lost or delivered twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import attrs

from flowdsl.errors import FlowError


@attrs.define
class ElementCounts:
    """Counts of the elements of a stage."""

    entered: int = 0
    delivered: int = 0
    filtered: int = 0
    skipped: int = 0
    retried: int = 0

    @property
    def under_way(self) -> int:
        """The elements that entered and are not accounted for yet."""
        return self.entered - self.delivered - self.filtered - self.skipped

    def forget_under_way(self) -> None:
        """Count the elements under way as not entered, after a pass that was ended early."""
        self.entered -= self.under_way

    def check(self, title: str) -> None:
        """Check, at the end of a pass, that the counts balance.

        Raises:
            FlowError: They do not balance, which is a defect of flowdsl, or of an operator.
        """
        if self.under_way:
            raise FlowError(
                f"the counts of the stage that ends in {title} do not balance: {self.entered} "
                f"elements went in, of which {self.delivered} came out, {self.filtered} were "
                f"filtered and {self.skipped} were skipped; this is a defect, please report it"
            )


_BINS_AN_OCTAVE = 8
"""Each bin spans 9%, which is less than the variation of times between runs."""

Bins: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of the number of a bin and its number of elements, the shortest times first. The number is
the logarithm of the seconds, in eighths of an octave, rounded down."""


@attrs.define
class Times:
    """A histogram of the times of elements, by the logarithm of the seconds."""

    _bins: Counter[int] = attrs.field(factory=Counter[int])

    def add(self, seconds: Iterable[float]) -> None:
        """Add the times of single elements."""
        for time in seconds:
            self._bins[_bin(time)] += 1

    def add_mean(self, seconds: float, count: int) -> None:
        """Add ``count`` elements whose total time is known."""
        if count:
            self._bins[_bin(seconds / count)] += count

    @property
    def bins(self) -> Bins:
        """The histogram so far."""
        return tuple(sorted(self._bins.items()))


def quantile(bins: Bins, q: float) -> float:
    """The ``q``-quantile of the elements' times, in seconds; 0 without elements."""
    remaining = q * sum(count for _, count in bins)
    for number, count in bins:
        remaining -= count
        if remaining <= 0:
            return float(2 ** ((number + 0.5) / _BINS_AN_OCTAVE))  # the middle of the bin
    return 0.0


def _bin(seconds: float) -> int:
    """The number of the bin of an element that took this time."""
    return math.floor(math.log2(max(seconds, 1e-9)) * _BINS_AN_OCTAVE)

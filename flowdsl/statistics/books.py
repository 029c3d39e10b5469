"""The books of a stage: what went in, and what became of it.

What goes in is counted where work is handed out, what comes out where the consumer takes it, and
what is left out where a result says so, by the workers' count. So the three agree only if nothing
was lost on the way, and nothing came twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import attrs

from flowdsl.errors import FlowError


@attrs.define
class Books:
    """Counts of elements, over a pass."""

    entered: int = 0
    delivered: int = 0
    filtered: int = 0
    skipped: int = 0
    retried: int = 0

    @property
    def under_way(self) -> int:
        """What went in, and is not accounted for yet."""
        return self.entered - self.delivered - self.filtered - self.skipped

    def settle(self) -> None:
        """A pass was cut short: what was under way then did not enter."""
        self.entered -= self.under_way

    def check(self, title: str) -> None:
        """At the end of a pass.

        Raises:
            FlowError: They do not balance, which is a defect of flowdsl, or of an operator.
        """
        if self.under_way:
            raise FlowError(
                f"the books of the stage that ends in {title} do not balance: {self.entered} "
                f"elements went in, of which {self.delivered} came out, {self.filtered} were "
                f"filtered and {self.skipped} were skipped; this is a defect, please report it"
            )


_BINS_AN_OCTAVE = 8
"""Bins of 9%, which is finer than times repeat."""

Bins: TypeAlias = tuple[tuple[int, int], ...]
"""Bins by the logarithm of the seconds, the shortest first, and the number of elements in each."""


@attrs.define
class Times:
    """How long elements took: their number by the logarithm of the seconds."""

    _bins: Counter[int] = attrs.field(factory=Counter[int])

    def add(self, seconds: Iterable[float]) -> None:
        """Times of one element each."""
        for one in seconds:
            self._bins[_bin(one)] += 1

    def add_mean(self, seconds: float, count: int) -> None:
        """So many elements, of which only the time of all together is known."""
        if count:
            self._bins[_bin(seconds / count)] += count

    @property
    def bins(self) -> Bins:
        """What there is so far."""
        return tuple(sorted(self._bins.items()))


def quantile(bins: Bins, q: float) -> float:
    """The seconds that this part of the elements took at most; 0 where there are none."""
    left = q * sum(count for _, count in bins)
    for place, count in bins:
        left -= count
        if left <= 0:
            return float(2 ** ((place + 0.5) / _BINS_AN_OCTAVE))
    return 0.0


def _bin(seconds: float) -> int:
    return math.floor(math.log2(max(seconds, 1e-9)) * _BINS_AN_OCTAVE)

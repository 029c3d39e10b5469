"""The statistics of a run: its stages, its consumer, and the elements it left out."""

from __future__ import annotations

import attrs

from flowdsl.statistics.figures import duration, number, share
from flowdsl.statistics.stages import OperatorCost, StageStatistics
from flowdsl.statistics.tables import printed, table

MAX_SKIPS = 100
"""The maximum number of skipped elements that are listed in ``skips``."""


@attrs.frozen
class Skip:
    """An element that was left out because it failed."""

    error: str
    """The message of the error, which names the operator, the element and its row."""
    step: int = 0
    """The number of the failed operator in ``flow.explain()``."""


@attrs.frozen
class Occupancy:
    """The share of an operator's elements that is not padding."""

    title: str
    occupied: int
    """The number of entries that are not padding."""
    entries: int
    """The number of all entries."""
    step: int = 0
    """The operator's number in ``flow.explain()``, which differs for operators of one title."""

    @property
    def share(self) -> float:
        """The share of entries that are not padding, from 0 to 1; 1 without entries."""
        return self.occupied / self.entries if self.entries else 1.0

    def __str__(self) -> str:
        return f"{self.title}: {share(self.share)} of {self.entries:,} entries are not padding"


LEAST_SEEN = 10_000
"""Filters that have seen fewer elements than this do not count as keeping almost none."""

DROPPED_IN_A_ROW = 100_000
"""A pass that has kept none of its first elements says so after this many, before its end."""


@attrs.frozen
class Filtered:
    """The number of elements that filters that run together keep.

    >>> print(Filtered("filter(is_odd)", kept=3, seen=12_000))
    filter(is_odd) kept 3 of 12,000 elements
    """

    title: str
    kept: int
    seen: int
    step: int = 0
    """The number of the last of the filters in ``flow.explain()``."""

    @property
    def is_sparse(self) -> bool:
        """True if they keep fewer than one element of a thousand."""
        return self.seen >= LEAST_SEEN and self.kept * 1000 < self.seen

    def __str__(self) -> str:
        return f"{self.title} kept {self.kept:,} of {self.seen:,} elements"


@attrs.frozen
class RunStatistics:
    """The figures of a run: its stages, sources first, and its consumer."""

    elements: int
    """Elements delivered in this run, without those before a resume."""
    seconds: float
    """Seconds since the first element was requested."""
    consumer_seconds: float
    """Seconds of the consumer's own work, between receiving an element and requesting the next.

    0 where it is not measured: without threads or workers, unless the run is profiled.
    """
    stages: tuple[StageStatistics, ...]
    skipped: int = 0
    """The number of elements that were left out because they failed."""
    skips: tuple[Skip, ...] = ()
    """The first ``MAX_SKIPS`` elements that were left out because they failed."""
    length: int | None = None
    """The number of elements in the whole pass, if known."""
    profiled: bool = False
    """True if every operator and the consumer were timed, which has a cost of its own."""
    hosted: tuple[OperatorCost, ...] = ()
    """The costs of operators outside of stages, if profiled; the consumer's thread runs them."""
    occupancy: tuple[Occupancy, ...] = ()
    """The share that is not padding for operators such as ``pack``, outside of stages."""
    filtered: tuple[Filtered, ...] = ()
    """The elements that the filters of each stage keep, and each filter outside of stages."""
    waited_for_core: float = 0.0
    """Seconds in which the consumer's thread was ready to run, and other threads or programs used
    the cores; 0 if unknown: only a profile measures it, on Linux."""

    @property
    def rate(self) -> float:
        """The elements delivered per second."""
        return self.elements / self.seconds if self.seconds else 0.0

    @property
    def waited_share(self) -> float:
        """The share of the run's time in which the consumer waited for elements, from 0 to 1.

        It is 1 where the consumer's time is not measured; ``profile()`` measures it.
        """
        if not self.seconds:
            return 0.0
        return max(0.0, 1 - self.consumer_seconds / self.seconds)

    @property
    def sparse(self) -> tuple[Filtered, ...]:
        """The filters that keep almost nothing."""
        return tuple(filtered for filtered in self.filtered if filtered.is_sparse)

    @property
    def advice_on_filters(self) -> str:
        """Which filters keep almost nothing, and what to do about it; empty if there are none."""
        found = "; ".join(map(str, self.sparse))
        return found and (
            f"{found}: if more should be kept, see what the function returns; if not, "
            f"select_rows(positions) reads only the rows that are wanted."
        )

    @property
    def summary(self) -> str:
        """A summary of the run in one line.

        >>> RunStatistics(9, 2.0, 0.5, ()).summary
        '4.5 elements/s: 9 in 2 s, of which the consumer waited 75%'
        """
        whole = "" if self.length is None else f" of {self.length:,}"
        left_out = f"; {self.skipped:,} were left out" if self.skipped else ""
        waited = f", of which the consumer waited {share(self.waited_share)}"
        return (
            f"{number(self.rate)} elements/s: {self.elements:,}{whole} in {duration(self.seconds)}"
            f"{waited if self.profiled or self.consumer_seconds else ''}{left_out}"
        )

    def __str__(self) -> str:
        parts = [self.summary, *map(str, self.occupancy), *map(str, self.sparse)]
        if self.stages:
            parts.append(printed(table(self.stages)))
        return "\n".join(parts)

"""Sums and differences of statistics: of runs of one flow, and of the copies of a stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest

import attrs

from flowdsl.statistics.accounting import Bins
from flowdsl.statistics.run import MAX_SKIPS, Filtered, Occupancy, RunStatistics
from flowdsl.statistics.stages import OperatorCost, StageStatistics, WorkerStatistics


def together(first: RunStatistics, other: RunStatistics) -> RunStatistics:
    """Add the statistics of two consecutive runs, as if they were one run.

    >>> run = RunStatistics(10, 2.0, 1.0, ())
    >>> together(run, run).rate, since(together(run, run), run) == run
    (5.0, True)
    """
    both = _combined(first, other, sign=1)
    return attrs.evolve(both, skips=(first.skips + other.skips)[:MAX_SKIPS])


def since(now: RunStatistics, then: RunStatistics) -> RunStatistics:
    """Return a run's current statistics minus its earlier statistics ``then``."""
    return _combined(now, then, sign=-1)


def as_one(copies: Sequence[StageStatistics]) -> StageStatistics:
    """Add the statistics of copies of a stage that ran concurrently, as if they were one stage."""
    return attrs.evolve(
        reduce(lambda first, other: _stage(first, other, sign=1), copies),
        seconds=max(first.seconds for first in copies),
        in_flight=sum(first.in_flight for first in copies),
        workers=tuple(worker for first in copies for worker in first.workers),
    )


def _combined(first: RunStatistics, other: RunStatistics, sign: int) -> RunStatistics:
    stages = [_stage(a, b, sign) for a, b in zip(first.stages, other.stages, strict=False)]
    return attrs.evolve(
        first,
        elements=first.elements + sign * other.elements,
        seconds=first.seconds + sign * other.seconds,
        consumer_seconds=first.consumer_seconds + sign * other.consumer_seconds,
        stages=(*stages, *first.stages[len(stages) :]),
        hosted=_costs(first.hosted, other.hosted, sign),
        skipped=first.skipped + sign * other.skipped,
        occupancy=_occupancy(first.occupancy, other.occupancy, sign),
        filtered=_filtered(first.filtered, other.filtered, sign),
        waited_for_core=max(0.0, first.waited_for_core + sign * other.waited_for_core),
    )


_SUMS = (
    "seconds",
    "entered",
    "delivered",
    "filtered",
    "skipped",
    "retried",
    "deaths",
    "input_seconds",
    "waited",
    "nbytes",
)
"""The figures of a stage that are added or subtracted."""


def _stage(first: StageStatistics, other: StageStatistics, sign: int) -> StageStatistics:
    seconds = first.seconds + sign * other.seconds
    filled = first.fill * first.seconds + sign * other.fill * other.seconds
    workers = list(zip_longest(first.workers, other.workers, fillvalue=WorkerStatistics(0, 0.0)))
    if sign < 0:
        del workers[len(first.workers) :]  # workers that were stopped in the meantime
    worker_seconds = (
        None
        if first.worker_seconds is None
        else first.worker_seconds + sign * (other.worker_seconds or 0.0)
    )
    return attrs.evolve(
        first,
        **{name: getattr(first, name) + sign * getattr(other, name) for name in _SUMS},
        fill=min(1.0, max(0.0, filled / seconds)) if seconds > 0 else 0.0,
        workers=tuple(_worker(a, b, sign) for a, b in workers),
        dismissed=_worker(first.dismissed, other.dismissed, sign),
        worker_seconds=worker_seconds,
        costs=_costs(first.costs, other.costs, sign),
        times=_times(first.times, other.times, sign),
    )


def _worker(first: WorkerStatistics, other: WorkerStatistics, sign: int) -> WorkerStatistics:
    cpu = None if first.cpu is None else first.cpu + sign * (other.cpu or 0.0)
    return WorkerStatistics(
        max(0, first.elements + sign * other.elements),
        max(0.0, first.busy + sign * other.busy),
        cpu,
        max(0.0, first.waited_for_core + sign * other.waited_for_core),
    )


def _times(first: Bins, other: Bins, sign: int) -> Bins:
    total = Counter(dict(first))
    for bin_number, count in other:
        total[bin_number] += sign * count
    return tuple(sorted((bin_number, count) for bin_number, count in total.items() if count > 0))


def _costs(
    first: tuple[OperatorCost, ...], other: tuple[OperatorCost, ...], sign: int
) -> tuple[OperatorCost, ...]:
    """Combine costs in order if the operators match; some may not have been called yet."""
    if [(cost.step, cost.title) for cost in first] != [(cost.step, cost.title) for cost in other]:
        return first or other
    return tuple(
        attrs.evolve(a, calls=a.calls + sign * b.calls, seconds=a.seconds + sign * b.seconds)
        for a, b in zip(first, other, strict=True)
    )


def _occupancy(
    first: tuple[Occupancy, ...], other: tuple[Occupancy, ...], sign: int
) -> tuple[Occupancy, ...]:
    """Combine the occupancy of the same operators; others belong to another plan."""
    if [one.step for one in first] != [one.step for one in other]:
        return first or other
    return tuple(
        attrs.evolve(
            a, occupied=a.occupied + sign * b.occupied, entries=a.entries + sign * b.entries
        )
        for a, b in zip(first, other, strict=True)
    )


def _filtered(
    first: tuple[Filtered, ...], other: tuple[Filtered, ...], sign: int
) -> tuple[Filtered, ...]:
    """Combine the counts of the same filters; others belong to another plan."""
    if [one.step for one in first] != [one.step for one in other]:
        return first or other
    return tuple(
        attrs.evolve(a, kept=a.kept + sign * b.kept, seen=a.seen + sign * b.seen)
        for a, b in zip(first, other, strict=True)
    )

"""Sums and differences of statistics: of runs of one flow, and of the copies of a stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest

import attrs

from flowdsl.statistics.accounting import Bins
from flowdsl.statistics.run import (
    MOST_SKIPS,
    OperatorCost,
    RunStatistics,
    StageStatistics,
    WorkerStatistics,
)


def together(one: RunStatistics, other: RunStatistics) -> RunStatistics:
    """The statistics of two runs, one after the other, as those of one run.

    >>> run = RunStatistics(10, 2.0, 1.0, ())
    >>> together(run, run).rate, since(together(run, run), run) == run
    (5.0, True)
    """
    both = _combined(one, other, 1)
    return attrs.evolve(both, skips=(one.skips + other.skips)[:MOST_SKIPS])


def since(now: RunStatistics, then: RunStatistics) -> RunStatistics:
    """What a run has done since it had the statistics ``then``."""
    return _combined(now, then, -1)


def as_one(copies: Sequence[StageStatistics]) -> StageStatistics:
    """The statistics of copies of a stage that ran at the same time, as those of one stage."""
    return attrs.evolve(
        reduce(lambda one, other: _stage(one, other, 1), copies),
        seconds=max(one.seconds for one in copies),
        in_flight=sum(one.in_flight for one in copies),
        workers=tuple(worker for one in copies for worker in one.workers),
    )


def _combined(one: RunStatistics, other: RunStatistics, sign: int) -> RunStatistics:
    stages = [_stage(a, b, sign) for a, b in zip(one.stages, other.stages, strict=False)]
    return attrs.evolve(
        one,
        elements=one.elements + sign * other.elements,
        seconds=one.seconds + sign * other.seconds,
        consumer_seconds=one.consumer_seconds + sign * other.consumer_seconds,
        stages=(*stages, *one.stages[len(stages) :]),
        hosted=_costs(one.hosted, other.hosted, sign),
        skipped=one.skipped + sign * other.skipped,
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


def _stage(one: StageStatistics, other: StageStatistics, sign: int) -> StageStatistics:
    seconds = one.seconds + sign * other.seconds
    filled = one.fill * one.seconds + sign * other.fill * other.seconds
    workers = list(zip_longest(one.workers, other.workers, fillvalue=WorkerStatistics(0, 0.0)))
    if sign < 0:
        del workers[len(one.workers) :]  # the others went in the meantime
    staffed = None if one.staffed is None else one.staffed + sign * (other.staffed or 0.0)
    return attrs.evolve(
        one,
        **{name: getattr(one, name) + sign * getattr(other, name) for name in _SUMS},
        fill=min(1.0, max(0.0, filled / seconds)) if seconds > 0 else 0.0,
        workers=tuple(_worker(a, b, sign) for a, b in workers),
        dismissed=_worker(one.dismissed, other.dismissed, sign),
        staffed=staffed,
        costs=_costs(one.costs, other.costs, sign),
        times=_times(one.times, other.times, sign),
    )


def _worker(one: WorkerStatistics, other: WorkerStatistics, sign: int) -> WorkerStatistics:
    cpu = None if one.cpu is None else one.cpu + sign * (other.cpu or 0.0)
    return WorkerStatistics(
        max(0, one.elements + sign * other.elements), max(0.0, one.busy + sign * other.busy), cpu
    )


def _times(one: Bins, other: Bins, sign: int) -> Bins:
    total = Counter(dict(one))
    for place, count in other:
        total[place] += sign * count
    return tuple(sorted((place, count) for place, count in total.items() if count > 0))


def _costs(
    one: tuple[OperatorCost, ...], other: tuple[OperatorCost, ...], sign: int
) -> tuple[OperatorCost, ...]:
    """Costs combined in order while the operators match; some may not have been called yet."""
    if [(cost.step, cost.title) for cost in one] != [(cost.step, cost.title) for cost in other]:
        return one or other
    return tuple(
        attrs.evolve(a, calls=a.calls + sign * b.calls, seconds=a.seconds + sign * b.seconds)
        for a, b in zip(one, other, strict=True)
    )

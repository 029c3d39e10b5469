"""Sums and differences of the figures of runs of one flow."""

from __future__ import annotations

from itertools import zip_longest

import attrs

from flowdsl.runtime.statistics import (
    OperatorCost,
    RunStatistics,
    StageStatistics,
    WorkerStatistics,
)


def together(one: RunStatistics, other: RunStatistics) -> RunStatistics:
    """Both runs as one: one pass, and then the other.

    >>> run = RunStatistics(10, 2.0, 1.0, ())
    >>> together(run, run).rate, since(together(run, run), run) == run
    (5.0, True)
    """
    return _combined(one, other, 1)


def since(now: RunStatistics, then: RunStatistics) -> RunStatistics:
    """What a run has done since it had these figures."""
    return _combined(now, then, -1)


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
        skips=one.skips + other.skips if sign > 0 else one.skips,
        length=None if sign > 0 and one.length is None else one.length,
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
    typical = other if sign > 0 and other.delivered > one.delivered else one
    workers = zip_longest(one.workers, other.workers, fillvalue=WorkerStatistics(0, 0.0))
    return attrs.evolve(
        one,
        **{name: getattr(one, name) + sign * getattr(other, name) for name in _SUMS},
        fill=min(1.0, max(0.0, filled / seconds)) if seconds > 0 else 0.0,
        workers=tuple(_worker(a, b, sign) for a, b in workers),
        costs=_costs(one.costs, other.costs, sign),
        p50=typical.p50,
        p99=typical.p99,
    )


def _worker(one: WorkerStatistics, other: WorkerStatistics, sign: int) -> WorkerStatistics:
    cpu = None if one.cpu is None else one.cpu + sign * (other.cpu or 0.0)
    return WorkerStatistics(
        max(0, one.elements + sign * other.elements), max(0.0, one.busy + sign * other.busy), cpu
    )


def _costs(
    one: tuple[OperatorCost, ...], other: tuple[OperatorCost, ...], sign: int
) -> tuple[OperatorCost, ...]:
    """By their place, where the operators are the same; not all may have been called yet."""
    if [cost.title for cost in one] != [cost.title for cost in other]:
        return one or other
    return tuple(
        OperatorCost(a.title, a.calls + sign * b.calls, a.seconds + sign * b.seconds)
        for a, b in zip(one, other, strict=True)
    )

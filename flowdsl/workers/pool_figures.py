"""The figures of a pool: what it counts and measures, over all its passes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs

from flowdsl.executor.costs import Costs, add_costs, costs_of
from flowdsl.plan.plan import Stage
from flowdsl.statistics.accounting import ElementCounts, Times
from flowdsl.statistics.stages import StageStatistics, WorkerStatistics
from flowdsl.workers.active_workers import ActiveWorkers, Totals
from flowdsl.workers.backend import Result, Worker


@attrs.define
class PoolFigures:
    """Counts of elements and bytes, and the seconds spent in each way."""

    counts: ElementCounts = attrs.field(factory=ElementCounts)
    reading: float = 0.0
    """Seconds in which the consumer's thread read rows, or waited for a stream."""
    waited: float = 0.0
    """Seconds in which the consumer's thread waited for workers."""
    outside: float = 0.0
    """Seconds of the consumer's own work between the elements that it took."""
    worked: float = 0.0
    """Total seconds of work of all workers."""
    results_waiting: float = 0.0
    """The number of results that waited for delivery, multiplied by the seconds they waited."""
    nbytes: int = 0
    """The bytes of all results."""
    _times: Times = attrs.field(factory=Times)
    _costs: Costs = attrs.field(factory=dict)
    _began: float | None = None
    """The time at which the first pass began."""
    _ended: float | None = None
    """The time at which the last pass ended; None while one is running."""

    @property
    def totals(self) -> Totals:
        """The seconds by which the number of workers is tuned."""
        return Totals(self.waited, self.outside, self.worked)

    def begin_pass(self) -> None:
        """Note the beginning of a pass."""
        self._began = self._began or time.perf_counter()
        self._ended = None

    def end_pass(self) -> None:
        """Note the end of a pass, if one is under way."""
        self._ended = self._ended or time.perf_counter()

    def add_result(self, result: Result, nbytes: int) -> None:
        """Add the figures of a task's result, which has ``nbytes`` bytes."""
        self.worked += result.seconds
        self.nbytes += nbytes
        add_costs(self._costs, result.costs)
        self._times.add(result.times)
        if not result.times:
            self._times.add_mean(result.seconds, result.returned)

    def statistics(
        self,
        stage: Stage,
        workers: Sequence[Worker],
        active: ActiveWorkers,
        *,
        deaths: int,
        credit: int,
    ) -> StageStatistics:
        """Return the statistics of a stage; at most ``credit`` results can wait for delivery."""
        now = self._ended or time.perf_counter()
        seconds = now - (self._began or now)
        return StageStatistics(
            operators=stage.titles,
            kind=stage.workers.kind,
            seconds=seconds,
            entered=self.counts.entered,
            delivered=self.counts.delivered,
            filtered=self.counts.filtered,
            skipped=self.counts.skipped,
            retried=self.counts.retried,
            in_flight=self.counts.under_way,
            deaths=deaths,
            workers=tuple(
                WorkerStatistics(w.elements, w.busy, w.cpu, w.waited_for_core) for w in workers
            ),
            dismissed=active.dismissed,
            worker_seconds=active.seconds(now),
            input_seconds=self.reading,
            waited=self.waited,
            fill=min(1.0, self.results_waiting / seconds / credit) if seconds else 0.0,
            nbytes=self.nbytes,
            times=self._times.bins,
            ordered=stage.ordered,
            copies=stage.copies,
            costs=costs_of(stage, self._costs),
        )

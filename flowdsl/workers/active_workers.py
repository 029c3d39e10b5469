"""The active workers of a backend: a fixed number, or the number that the tuner finds."""

from __future__ import annotations

import time
from typing import NamedTuple

import attrs

from flowdsl.resources.worker_kinds import Workers
from flowdsl.statistics.stages import WorkerStatistics
from flowdsl.workers.backend import Worker, WorkerBackend
from flowdsl.workers.tuner import Span, Tuner

AT_FIRST = 2
"""The number of workers started immediately."""

FOR_EACH = 1
"""The number of further workers started for each ready worker. So the first element does not wait
until all workers have started, and a short pass does not start workers it does not need."""


class Totals(NamedTuple):
    """Seconds since a pool was created, by which the number of workers is tuned."""

    waited: float
    """The consumer's thread waited for workers."""
    outside: float
    """The consumer did its own work."""
    worked: float
    """Work of all workers together."""


_ZERO = Totals(0.0, 0.0, 0.0)


@attrs.define
class ActiveWorkers:
    """Decides how many workers receive tasks; the others finish their tasks and are dismissed."""

    backend: WorkerBackend
    count: int
    tuner: Tuner | None
    """Determines ``count``; None if the number is fixed."""
    dismissed: WorkerStatistics = attrs.field(factory=lambda: WorkerStatistics(0, 0.0, 0.0))
    """The statistics of dismissed workers."""
    _worker_seconds: float = 0.0
    """For each worker the seconds for which it existed until ``_counted``, added."""
    _counted: float | None = None
    """The time until which ``_worker_seconds`` counts; None before the first pass."""
    _last_time: float = 0.0
    """The time of the last ``observe``."""
    _last_totals: Totals = _ZERO

    @classmethod
    def of(cls, backend: WorkerBackend, asked: Workers, tuned: int | None) -> ActiveWorkers:
        """Create it for the requested workers; ``tuned`` is their number after the last pass."""
        tuner = Tuner(asked.count, tuned or 1) if asked.auto else None
        return cls(backend, tuner.count if tuner else asked.count, tuner)

    def start(self, totals: Totals) -> None:
        """Start the workers for a pass; ``totals`` are those at its beginning."""
        self.backend.start(min(self.count, AT_FIRST))
        self.start_missing()
        self._last_time, self._last_totals = time.perf_counter(), totals
        self._counted = self._counted or self._last_time

    def start_missing(self) -> None:
        """Start missing workers, up to ``FOR_EACH`` more for each ready one."""
        while (present := len(self.backend.workers)) < self.count:
            ready = sum(worker.ready for worker in self.backend.workers)
            allowed = min(self.count, (1 + FOR_EACH) * ready)
            if allowed <= present:
                return
            self.backend.start(allowed)
            if len(self.backend.workers) == present:
                return  # a cluster has no room for it now

    @property
    def members(self) -> list[Worker]:
        """The workers that receive tasks."""
        return self.backend.workers[: self.count]

    def dismiss_idle(self) -> None:
        """End the surplus workers that hold no tasks any more."""
        for worker in self.backend.workers[self.count :]:
            if not worker.held:
                total = self.dismissed
                self.dismissed = WorkerStatistics(
                    total.elements + worker.elements,
                    total.busy + worker.busy,
                    (total.cpu or 0.0) + worker.cpu,
                    total.waited_for_core + worker.waited_for_core,
                )
                self.backend.dismiss(worker)

    def observe(self, elements: int, totals: Totals, under_way: int) -> bool:
        """Record a delivered task; return True if the number of workers has changed.

        ``under_way`` is the number of tasks that are not delivered yet.
        """
        if self.tuner is None:
            return False
        last_time, last = self._last_time, self._last_totals
        now = time.perf_counter()
        self._last_time, self._last_totals = now, totals
        if not all(worker.ready for worker in self.backend.workers):
            return False
        span = Span(
            seconds=now - last_time,
            elements=elements,
            waited=totals.waited - last.waited,
            outside=totals.outside - last.outside,
            worked=totals.worked - last.worked,
        )
        self.tuner.observe(span, under_way)
        if self.tuner.count == self.count:
            return False
        self._worker_seconds, self._counted = self._seconds(now), now
        self.count = self.tuner.count
        self.start_missing()
        return True

    def seconds(self, now: float) -> float | None:
        """Return the total worker seconds; None if the number of workers is fixed."""
        return self._seconds(now) if self.tuner else None

    def _seconds(self, now: float) -> float:
        """Return the total worker seconds until ``now``."""
        return self._worker_seconds + self.count * (now - (self._counted or now))

"""The active workers of a backend: a fixed number, or the number that the tuner finds."""

from __future__ import annotations

import time

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


@attrs.define
class ActiveWorkers:
    """Decides how many workers receive tasks; the others finish their tasks and are dismissed."""

    backend: WorkerBackend
    count: int
    tuner: Tuner | None
    """Determines ``count``; None if the number is fixed."""
    dismissed: WorkerStatistics = attrs.field(factory=lambda: WorkerStatistics(0, 0.0, 0.0))
    """The statistics of dismissed workers."""
    _staffed: float = 0.0
    """Total worker seconds until ``_counted``: for each worker the time it existed."""
    _counted: float | None = None
    _seen: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """The time of the last ``observe``, with the totals ``waited``, ``outside`` and ``worked``."""

    @classmethod
    def of(cls, backend: WorkerBackend, asked: Workers, found: int | None) -> ActiveWorkers:
        """Create it for the requested workers; ``found`` is the tuned number of the last pass."""
        tuner = Tuner(asked.count, found or 1) if asked.auto else None
        return cls(backend, tuner.count if tuner else asked.count, tuner)

    def start(self, waited: float, outside: float, worked: float) -> None:
        """Start the workers for a pass; the arguments are the totals at its beginning."""
        self.backend.start(min(self.count, AT_FIRST))
        self.complete()
        now = time.perf_counter()
        self._counted = self._counted or now
        self._seen = now, waited, outside, worked

    def complete(self) -> None:
        """Start missing workers, as many as the number of ready workers allows."""
        while (present := len(self.backend.workers)) < self.count:
            ready = sum(worker.ready for worker in self.backend.workers)
            if min(self.count, (1 + FOR_EACH) * ready) <= present:
                return
            self.backend.start(min(self.count, (1 + FOR_EACH) * ready))
            if len(self.backend.workers) == present:
                return  # a cluster has no room for it now

    @property
    def able(self) -> list[Worker]:
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
                )
                self.backend.dismiss(worker)

    def observe(
        self, elements: int, waited: float, outside: float, worked: float, under_way: int
    ) -> bool:
        """Record a delivered task; return True if the number of workers has changed.

        ``waited``, ``outside`` and ``worked`` are totals in seconds: of the consumer's thread
        waiting for workers, of the consumer's own work, and of the work of all workers.
        ``under_way`` is the number of tasks that are not delivered yet.
        """
        if self.tuner is None:
            return False
        before, now = self._seen, (time.perf_counter(), waited, outside, worked)
        self._seen = now
        if not all(worker.ready for worker in self.backend.workers):
            return False
        seconds, *spent = (b - a for a, b in zip(before, now, strict=True))
        self.tuner.observe(Span(seconds, elements, *spent), under_way)
        if self.tuner.count == self.count:
            return False
        self._staffed, self._counted = self._seconds(now[0]), now[0]
        self.count = self.tuner.count
        self.complete()
        return True

    def seconds(self, now: float) -> float | None:
        """Return the total worker seconds; None if the number of workers is fixed."""
        return self._seconds(now) if self.tuner else None

    def _seconds(self, now: float) -> float:
        return self._staffed + self.count * (now - (self._counted or now))

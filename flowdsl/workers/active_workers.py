"""The workers of a backend that are given work: a fixed number, or as many as are found to pay."""

from __future__ import annotations

import time

import attrs

from flowdsl.resources.worker_kinds import Workers
from flowdsl.statistics.run import WorkerStatistics
from flowdsl.workers.backend import Worker, WorkerBackend
from flowdsl.workers.tuner import Span, Tuner

AT_FIRST = 2
"""The workers that are started at once."""

FOR_EACH = 1
"""The further ones that are started for each that is ready. So the first element need not wait for
all of them to start, and not all are started for a pass that some can finish."""


@attrs.define
class ActiveWorkers:
    """How many workers of a backend are given work; the others finish what they hold, and go."""

    backend: WorkerBackend
    count: int
    tuner: Tuner | None
    """Finds ``count``; None if it was given."""
    dismissed: WorkerStatistics = attrs.field(factory=lambda: WorkerStatistics(0, 0.0, 0.0))
    """What the workers had done that went."""
    _staffed: float = 0.0
    """Seconds for which workers were there, added up, until ``_counted``."""
    _counted: float | None = None
    _seen: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """The moment of the last ``observe``, and what was waited, outside and worked until then."""

    @classmethod
    def of(cls, backend: WorkerBackend, asked: Workers, found: int | None) -> ActiveWorkers:
        """As many workers as are asked for; ``found`` is the number that paid the last time."""
        tuner = Tuner(asked.count, found or 1) if asked.auto else None
        return cls(backend, tuner.count if tuner else asked.count, tuner)

    def start(self, waited: float, outside: float, worked: float) -> None:
        """Start the workers for a pass; the totals are those with which it begins."""
        self.backend.start(min(self.count, AT_FIRST))
        self.complete()
        now = time.perf_counter()
        self._counted = self._counted or now
        self._seen = now, waited, outside, worked

    def complete(self) -> None:
        """Start as many of the missing workers as those who are ready allow."""
        while (there := len(self.backend.workers)) < self.count:
            ready = sum(worker.ready for worker in self.backend.workers)
            if min(self.count, (1 + FOR_EACH) * ready) <= there:
                return
            self.backend.start(min(self.count, (1 + FOR_EACH) * ready))

    @property
    def able(self) -> list[Worker]:
        """The workers that are given work."""
        return self.backend.workers[: self.count]

    def dismiss_idle(self) -> None:
        """End the workers beyond the number that hold nothing any more."""
        for worker in self.backend.workers[self.count :]:
            if not worker.held:
                one = self.dismissed
                self.dismissed = WorkerStatistics(
                    one.elements + worker.elements,
                    one.busy + worker.busy,
                    (one.cpu or 0.0) + worker.cpu,
                )
                self.backend.dismiss(worker)

    def observe(
        self, elements: int, waited: float, outside: float, worked: float, under_way: int
    ) -> bool:
        """Take note of a task that was delivered; tells whether the number has changed.

        The seconds are totals: the consumer's thread waited, the consumer was at its own work, and
        the workers were. ``under_way`` is the number of tasks that are not delivered yet.
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
        """Seconds for which workers were there, added up; None if their number was given."""
        return self._seconds(now) if self.tuner else None

    def _seconds(self, now: float) -> float:
        return self._staffed + self.count * (now - (self._counted or now))

"""The statistics of a stage: its counts and times, and its workers' and operators'.

Times are in seconds of wall time, sizes in bytes. Statistics are plain data without a reference to
the run: they can be kept, compared and pickled.
"""

from __future__ import annotations

from typing import Literal

import attrs

from flowdsl.resources.worker_kinds import WorkerKind
from flowdsl.statistics.accounting import Bins, quantile


@attrs.frozen
class OperatorCost:
    """The time of one operator, as measured by a profile."""

    title: str
    calls: int
    seconds: float
    """Seconds in the operator alone, without the operators below it."""
    step: int = 0
    """The operator's number in ``flow.explain()``, which differs for operators of one title."""

    @property
    def mean(self) -> float:
        """Mean seconds per call."""
        return self.seconds / self.calls if self.calls else 0.0


@attrs.frozen
class WorkerStatistics:
    """The figures of one worker of a stage."""

    elements: int
    busy: float
    """Seconds spent on tasks, packing the results included."""
    cpu: float | None = None
    """Seconds of ``busy`` on a core, not waiting for one or for files; None if unknown."""
    waited_for_core: float = 0.0
    """Seconds of ``busy`` in which it was ready to run, and other threads or programs used the
    cores; 0 if unknown, as on all systems but Linux."""


@attrs.frozen
class StageStatistics:
    """The figures of a stage: operators that run together.

    Elements are the elements that the stage delivers: batches, if it ends in ``batch(32)``.
    """

    operators: tuple[str, ...]
    """The titles of the stage's operators, sources first."""
    seconds: float
    """Seconds since the first element was requested."""
    entered: int
    """Positions that entered the stage."""
    delivered: int
    """Elements that were delivered to the consumer."""
    filtered: int = 0
    """Elements left out by filters."""
    skipped: int = 0
    """Elements left out because of ``on_error``: they failed, or killed workers."""
    retried: int = 0
    """Elements submitted again because a worker ended or was stopped."""
    in_flight: int = 0
    """Elements submitted and not yet delivered."""
    deaths: int = 0
    """Workers that ended or were ended before their work was done."""
    kind: WorkerKind | None = None
    """The kind of the stage's workers; None if the consumer's thread runs the stage."""
    workers: tuple[WorkerStatistics, ...] = ()
    """The current workers, or those at the end; empty if the consumer's thread runs the stage."""
    dismissed: WorkerStatistics = WorkerStatistics(0, 0.0, 0.0)
    """The work of workers that were stopped, if the run adjusts the number of workers."""
    worker_seconds: float | None = None
    """The total time for which workers existed, if the run adjusts their number, else None."""
    input_seconds: float = 0.0
    """Seconds in which the consumer's thread read the rows that are sent to workers."""
    waited: float = 0.0
    """Seconds in which the consumer's thread did nothing but wait for this stage."""
    fill: float = 0.0
    """The average share of the credit used by finished results that wait, from 0 to 1."""
    nbytes: int = 0
    """Bytes of all results, arrays and messages included."""
    times: Bins = ()
    """A histogram of the elements' computing times."""
    costs: tuple[OperatorCost, ...] = ()
    """The cost of each operator, sources first; empty unless the run was profiled."""
    ordered: bool = True
    """True if elements are delivered in order, whichever worker finishes first."""
    copies: Literal["rows", "passes"] | None = None
    """Set for the workers of ``replicate``: with "rows" they share the rows of all copies; with
    "passes" each runs a copy from end to end, so their number is part of the flow."""
    stays: tuple[str, ...] = ()
    """The titles of the stage's operators that workers cannot run."""

    @property
    def rate(self) -> float:
        """The elements delivered per second."""
        return self.delivered / self.seconds if self.seconds else 0.0

    @property
    def p50(self) -> float:
        """The median computing time of an element, in seconds."""
        return quantile(self.times, 0.5)

    @property
    def p99(self) -> float:
        """The 99th percentile of the elements' computing times, in seconds."""
        return quantile(self.times, 0.99)

    @property
    def auto(self) -> bool:
        """True if the run adjusts the number of workers."""
        return self.worker_seconds is not None

    @property
    def busy(self) -> float:
        """The seconds that all workers together have spent on tasks."""
        return sum(worker.busy for worker in self.workers) + self.dismissed.busy

    @property
    def utilisation(self) -> float:
        """The share of the workers' time in which they were busy, from 0 to 1."""
        whole = self.seconds * len(self.workers)
        available = whole if self.worker_seconds is None else self.worker_seconds
        return min(1.0, self.busy / available) if available else 0.0

    @property
    def computing(self) -> float | None:
        """The share of the workers' busy time on a core, from 0 to 1; None if unknown."""
        spent = [worker.cpu for worker in self.workers if worker.cpu is not None]
        if not self.busy or len(spent) < len(self.workers):
            return None
        return min(1.0, (sum(spent) + (self.dismissed.cpu or 0.0)) / self.busy)

    @property
    def waiting_for_core(self) -> float:
        """The share of the workers' busy time in which they waited for a core, from 0 to 1.

        It is 0 if unknown. The rest of the busy time, neither computing nor waiting for a core, is
        waiting for files, a network or a lock.
        """
        spent = [worker.waited_for_core for worker in (*self.workers, self.dismissed)]
        return min(1.0, sum(spent) / self.busy) if self.busy else 0.0

    @property
    def skew(self) -> float:
        """The busy time of the busiest worker relative to the average, minus 1: 0 if all are equal.

        Also 0 if the run adjusts the number of workers, as they exist for different times.
        """
        busy = [worker.busy for worker in self.workers]
        return max(busy) * len(busy) / sum(busy) - 1 if any(busy) and not self.auto else 0.0

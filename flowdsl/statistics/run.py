"""What a run has done so far: the books of every stage, and where the time went.

Times are in seconds of the clock, sizes in bytes. All of it is plain data, without a reference to
the run: it can be kept, compared and sent on.
"""

from __future__ import annotations

from typing import Literal

import attrs

from flowdsl.statistics import tables
from flowdsl.statistics.books import Bins, quantile
from flowdsl.worker_kinds import WorkerKind

MOST_SKIPS = 100
"""So many elements that were left out are told of."""


@attrs.frozen
class OperatorCost:
    """What one operator of a stage has cost, as far as a profile has timed it."""

    title: str
    calls: int
    seconds: float
    """In it alone, without the operators below it."""
    step: int = 0
    """The operator's number in ``flow.explain()``, which tells it from others of its title."""

    @property
    def mean(self) -> float:
        """Seconds a call."""
        return self.seconds / self.calls if self.calls else 0.0


@attrs.frozen
class WorkerStatistics:
    """One worker of a stage."""

    elements: int
    busy: float
    """Seconds spent on leases, from the first element to the last one packed."""
    cpu: float | None = None
    """Seconds of them on a processor, as against waiting for one or for files; None if unknown."""


@attrs.frozen
class StageStatistics:
    """A stage: operators that run together.

    An element is one of the stage's own: where it ends in ``batch(32)``, a batch.
    """

    operators: tuple[str, ...]
    """The titles of what it runs, in the order in which elements meet them."""
    seconds: float
    """Since the first element was asked for."""
    entered: int
    """Positions that were given to the stage to make elements of."""
    delivered: int
    """Elements that the consumer was given."""
    filtered: int = 0
    """Left out by filters."""
    skipped: int = 0
    """Left out because they failed, or killed workers, where ``on_error`` says so."""
    retried: int = 0
    """Given out again, because a worker ended or was stopped."""
    in_flight: int = 0
    """Given out, and not yet delivered."""
    deaths: int = 0
    """Workers that ended, or were ended, before their work was done."""
    kind: WorkerKind | None = None
    """That of its workers; None where the thread that iterates runs it, the consumer's."""
    workers: tuple[WorkerStatistics, ...] = ()
    """Those at work now, or at the end; empty for the consumer's thread."""
    input_seconds: float = 0.0
    """In which the consumer's thread read what the stage is supplied with."""
    waited: float = 0.0
    """In which the consumer had nothing to do but wait for this stage."""
    fill: float = 0.0
    """The part of what may be in flight that was finished and waiting, from 0 to 1, on average."""
    nbytes: int = 0
    """Of all results, arrays and messages."""
    times: Bins = ()
    """How long elements took to make."""
    costs: tuple[OperatorCost, ...] = ()
    """Per operator, where the run was profiled; sources first."""
    ordered: bool = True
    """Its elements are delivered in their order, whoever is done first."""
    copies: Literal["rows", "passes"] | None = None
    """Where ``replicate`` asked for workers: they share the rows of all copies, or have a copy each
    to run from end to end, so that another number of them would be another flow."""
    stays: tuple[str, ...] = ()
    """The titles of those of its operators that no worker can run."""

    @property
    def rate(self) -> float:
        """Elements delivered per second."""
        return self.delivered / self.seconds if self.seconds else 0.0

    @property
    def p50(self) -> float:
        """The median of the seconds that an element took to make."""
        return quantile(self.times, 0.5)

    @property
    def p99(self) -> float:
        """What 99 of 100 elements took at most."""
        return quantile(self.times, 0.99)

    @property
    def busy(self) -> float:
        """Seconds that workers have spent on leases, together."""
        return sum(worker.busy for worker in self.workers)

    @property
    def utilisation(self) -> float:
        """The part of the workers' time that they were busy, from 0 to 1."""
        available = self.seconds * len(self.workers)
        return min(1.0, self.busy / available) if available else 0.0

    @property
    def computing(self) -> float | None:
        """The part of their busy time that its workers were on a processor; None if unknown."""
        spent = [worker.cpu for worker in self.workers if worker.cpu is not None]
        if not self.busy or len(spent) < len(self.workers):
            return None
        return min(1.0, sum(spent) / self.busy)

    @property
    def skew(self) -> float:
        """How much longer the busiest worker was busy than the average one: 0 for none."""
        if not self.busy:
            return 0.0
        return max(worker.busy for worker in self.workers) * len(self.workers) / self.busy - 1


@attrs.frozen
class Skip:
    """An element that was left out."""

    error: str
    """The message of the error, which names the operator, the element and its row."""
    step: int = 0
    """The operator's number in ``flow.explain()``."""


@attrs.frozen
class RunStatistics:
    """A run: its stages, sources first, and its consumer."""

    elements: int
    """Delivered in this run, without those before a resume."""
    seconds: float
    """Since the first element was asked for."""
    consumer_seconds: float
    """In which the consumer had an element and did not ask for the next: its own work."""
    stages: tuple[StageStatistics, ...]
    skipped: int = 0
    """Elements that were left out since they failed."""
    skips: tuple[Skip, ...] = ()
    """The first ``MOST_SKIPS`` of the elements that were left out."""
    length: int | None = None
    """The elements of the pass, where that is known."""
    profiled: bool = False
    """Every operator and the consumer were timed; else only what costs nothing to time."""
    hosted: tuple[OperatorCost, ...] = ()
    """Of the operators that no stage runs but the consumer's thread, where the run was profiled."""

    @property
    def rate(self) -> float:
        """Elements per second."""
        return self.elements / self.seconds if self.seconds else 0.0

    @property
    def waited_share(self) -> float:
        """The part of its time in which the consumer waited for elements, from 0 to 1."""
        if not self.seconds:
            return 0.0
        return max(0.0, 1 - self.consumer_seconds / self.seconds)

    def __str__(self) -> str:
        return tables.text(self)

"""Backends: the interface between a pool and workers of one kind.

A pool submits tasks and receives events. Only the backend knows what its workers are (processes,
threads, or actors of a distributed engine) and how to communicate with them.
``flowdsl.testing.worker_backends`` contains tests of this protocol for backends of any kind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any, Protocol, TypeAlias

import attrs

from flowdsl.errors import FORKED, FlowError, InvalidFlow
from flowdsl.executor.codegen import Path
from flowdsl.executor.execute import SkippedElement, TaskFailure, TaskOutcome
from flowdsl.plan.plan import Stage
from flowdsl.workers.tasks import InputRows, Task, TaskInput

POLL_SECONDS = 0.5
"""The longest time that ``WorkerBackend.poll`` waits for an event."""


@attrs.define(eq=False)
class Worker:
    """One worker, and the tasks submitted to it."""

    name: str
    """The name of the worker in messages, such as ``worker process 1234``."""
    ready: bool = False
    held: dict[int, TaskInput] = attrs.field(factory=dict[int, TaskInput])
    """The tasks submitted to the worker and not done yet, by task number, the oldest first."""
    elements: int = 0
    """The number of elements that it has returned."""
    busy: float = 0.0
    """The seconds that it has spent on tasks."""
    cpu: float = 0.0
    """The seconds of CPU time that it has used for them."""
    waited_for_core: float = 0.0
    """The seconds of ``busy`` for which it was ready to run and waited for a core."""

    def clear_figures(self) -> None:
        """Set the figures to 0, for the next pass."""
        self.elements = 0
        self.busy = self.cpu = self.waited_for_core = 0.0


@attrs.frozen
class Result:
    """The outcome of a task: counts, times, and a failure if there was one."""

    number: int
    """The number of the task."""
    returned: int
    """The number of elements that the worker returns."""
    positions: list[int] | None
    """The position of each element if a filter left gaps; None if they are consecutive."""
    filtered: int
    skipped: list[SkippedElement]
    failure: TaskFailure | None
    seconds: float
    cpu: float
    """The seconds of CPU time that the worker used."""
    waited_for_core: float
    """The seconds for which the worker was ready to run and waited for a core; 0 if unknown."""
    times: list[float]
    """The seconds of each element, if the task is small."""
    costs: dict[Path, tuple[int, float]]
    """The calls and seconds of each operator, if operators are timed."""
    settled: int
    """The number of the task's elements that were returned, filtered or skipped; the rest is for
    another task."""
    unsent: Exception | None = None
    """The reason why the task's rows, or its first element, were not sent; None if they were."""


def result_of(outcome: TaskOutcome, task: Task) -> Result:
    """Create the result to report for a task from the outcome of its execution."""
    consecutive = list(range(task.start, task.start + len(outcome.elements)))
    return Result(
        number=task.number,
        returned=len(outcome.elements),
        positions=None if outcome.positions == consecutive else outcome.positions,
        filtered=outcome.filtered,
        skipped=outcome.skipped,
        failure=outcome.failure,
        seconds=outcome.seconds,
        cpu=outcome.cpu,
        waited_for_core=outcome.waited_for_core,
        times=outcome.times,
        costs=outcome.costs,
        settled=outcome.settled,
    )


class Delivery(Protocol):
    """The elements of a result, before the consumer receives them."""

    @property
    def nbytes(self) -> int:
        """The memory of the elements in bytes."""
        ...

    def open(self) -> Sequence[Any]:
        """Return the elements."""
        ...

    def discard(self) -> None:
        """Release the elements, which will not be delivered."""
        ...


@attrs.frozen
class Ready:
    """The event that a worker is ready for tasks."""

    worker: Worker


@attrs.frozen
class Done:
    """The event that a worker has finished a task."""

    worker: Worker
    result: Result
    delivery: Delivery


@attrs.frozen
class Died:
    """The event that a worker has ended or was ended; the tasks it held are not done."""

    worker: Worker
    how: str
    """The end of the worker, for messages, such as ``signal SIGKILL``."""
    begun: int | None = None
    """The number of the last task that the worker began; None if it began none."""


Event: TypeAlias = Ready | Done | Died


class WorkerBackend(Protocol):
    """The workers of a stage.

    A backend belongs to the process that created it. In a fork of that process ``start``,
    ``submit`` and ``poll`` raise a ``FlowError``, ``can_reuse`` returns False, and ``close`` and
    garbage collection do not touch the workers, which belong to the parent. An ``Owner``
    distinguishes a fork from the owning process.

    A backend that is garbage-collected ends as if it were closed.
    """

    @property
    def workers(self) -> list[Worker]:
        """The current workers; an empty list before ``start``."""
        ...

    def start(self, count: int) -> None:
        """Start workers until there are ``count``; return without waiting for them.

        Existing workers are kept.
        """
        ...

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        """Return the rows packed for a worker and their size; raise if they cannot be sent."""
        ...

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        """Send a task to a worker and add it to ``worker.held``.

        The caller of ``poll`` removes it when the task is done or its worker has died.
        """
        ...

    def poll(self) -> list[Event]:
        """Return the events since the last call, each once.

        If there are no events, wait for one, until ``wake`` is called or for ``POLL_SECONDS``, and
        return an empty list if none came. Raise any error after which no worker can continue.
        """
        ...

    def wake(self) -> None:
        """End the wait of the current ``poll``, or of the next one if none is waiting.

        Another thread calls this, between ``start`` and ``close``.
        """
        ...

    def replace(self, worker: Worker) -> None:
        """Start a new worker in place of a dead one; not called for kinds that cannot die."""
        ...

    def dismiss(self, worker: Worker) -> None:
        """End a worker that holds no tasks, without a replacement."""
        ...

    def park(self) -> bool:
        """Keep the workers after a pass for the next one; return True if they stay.

        Their counts are reset to 0. After a partial pass, workers may still hold tasks, whose
        results are discarded. Return False if one of them may need long for its task, or if workers
        of this kind are not reused; the caller then closes the backend.
        """
        ...

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        """Return True if the parked workers can run this stage exactly as new workers would.

        If so, they are active again. Return False if the program, ``time_operators``, the stage's
        limits, the working folder or the environment has changed since the workers were started.
        """
        ...

    def close(self) -> None:
        """End the workers soon, even in the middle of a task; delivered elements stay valid.

        ``close`` may be called twice, and before ``start``.
        """
        ...


class BackendFactory(Protocol):
    """Creates a backend without starting workers; usually the backend's class."""

    def __call__(self, stage: Stage, time_operators: bool) -> WorkerBackend:
        """Create a backend for ``stage``; with ``time_operators`` its workers time each operator.

        Raises:
            NotShippable: The program cannot be sent to workers.
        """
        ...


def create_backend(stage: Stage, time_operators: bool = False) -> WorkerBackend:
    """Create a backend of the worker kind of a stage.

    Raises:
        InvalidFlow: The factory that the kind names, or a module it needs, is missing.
        NotShippable: The program cannot be sent to workers.
    """
    kind = stage.workers.kind
    try:
        factory: BackendFactory = resolve_name(kind.backend)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidFlow(f"prefetch: {kind.keyword} needs {kind.backend}: {error}") from error
    return factory(stage, time_operators)


@attrs.define
class Owner:
    """The process that created a backend, and to which the backend belongs."""

    process: int = attrs.field(factory=os.getpid)

    @property
    def is_here(self) -> bool:
        """True in the owning process, False in a fork of it."""
        return os.getpid() == self.process

    def check(self) -> None:
        """Raise in a fork of the owner.

        Raises:
            FlowError: This process is a fork of the owner.
        """
        if not self.is_here:
            raise FlowError(FORKED)

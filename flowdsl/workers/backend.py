"""A backend: workers of one kind, as a pool sees them.

A pool hands out pieces of work and receives events. Only the backend knows what its workers are
(processes, threads, or actors of a distributed engine) and how to reach them.
``flowdsl.testing.worker_backends`` has tests of this protocol for backends of any kind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any, Protocol, TypeAlias

import attrs

from flowdsl.errors import FORKED, FlowError, InvalidFlow
from flowdsl.executor.codegen import Path
from flowdsl.executor.execute import Failure, SkippedElement, TaskOutcome
from flowdsl.plan.plan import Stage
from flowdsl.workers.tasks import InputRows, Task, TaskInput

POLL_SECONDS = 0.5
"""The longest time that ``WorkerBackend.hear`` waits for an event."""


@attrs.define(eq=False)
class Worker:
    """One worker, and the pieces of work that were given to it."""

    name: str
    """How messages call the worker, such as ``worker process 1234``."""
    ready: bool = False
    held: dict[int, TaskInput] = attrs.field(factory=dict[int, TaskInput])
    """The pieces given to the worker and not done yet, by task number, the oldest first."""
    elements: int = 0
    busy: float = 0.0
    cpu: float = 0.0


@attrs.frozen
class Result:
    """The outcome of a piece: counts, times, and a failure if there was one."""

    number: int
    count: int
    positions: list[int] | None
    """The position of each element if a filter left gaps; None if they are consecutive."""
    filtered: int
    left: list[SkippedElement]
    failure: Failure | None
    seconds: float
    cpu: float
    times: list[float]
    costs: dict[Path, tuple[int, float]]


def result_of(made: TaskOutcome, task: Task) -> Result:
    """The result to report for a task, from what was made of it."""
    consecutive = list(range(task.start, task.start + len(made.elements)))
    return Result(
        task.number,
        len(made.elements),
        None if made.positions == consecutive else made.positions,
        made.filtered,
        made.left,
        made.failure,
        made.seconds,
        made.cpu,
        made.times,
        made.costs,
    )


class Delivery(Protocol):
    """The elements of a result, on their way to the consumer."""

    @property
    def nbytes(self) -> int:
        """The memory that the elements take, in bytes."""
        ...

    def open(self) -> Sequence[Any]:
        """Take the elements."""
        ...

    def discard(self) -> None:
        """Release the elements, which nobody will take."""
        ...


@attrs.frozen
class Ready:
    """The event that a worker can be given work."""

    worker: Worker


@attrs.frozen
class Done:
    """The event that a worker has finished a piece."""

    worker: Worker
    result: Result
    delivery: Delivery


@attrs.frozen
class Died:
    """The event that a worker has ended or was ended; the pieces it held are not done."""

    worker: Worker
    how: str
    """How the worker ended, for messages, such as ``signal SIGKILL``."""
    begun: int | None = None
    """The number of the last task that it began, if any; of others it held it began none."""


Event: TypeAlias = Ready | Done | Died


class WorkerBackend(Protocol):
    """The workers of a stage.

    A backend belongs to the process that made it. In a fork of that process ``start``, ``submit``
    and ``poll`` raise a ``FlowError``, ``can_reuse`` is False, and ``close`` and garbage collection
    leave the workers alone, since they are not the fork's. An ``Owner`` distinguishes a fork from
    the owning process.

    A backend that nothing refers to any more ends as if it were closed.
    """

    @property
    def workers(self) -> list[Worker]:
        """The current workers; empty before ``start``."""
        ...

    def start(self, count: int) -> None:
        """Start workers until there are ``count``; they need not be ready on return.

        Workers that were started before are kept.
        """
        ...

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        """Rows packed for a worker, and their bytes; raises if they cannot be sent."""
        ...

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        """Give a piece to a worker and add it to ``worker.held``.

        The caller of ``poll`` removes it when the piece is done or its worker has died.
        """
        ...

    def poll(self) -> list[Event]:
        """The events since the last call, each once.

        Waits for an event for ``POLL_SECONDS`` at most, or until ``wake``, and gives an empty
        list if none came. Raises any error after which no worker can continue.
        """
        ...

    def wake(self) -> None:
        """End the wait of a ``poll`` that is under way, or else of the next one.

        It is called from another thread, between ``start`` and ``close``.
        """
        ...

    def replace(self, worker: Worker) -> None:
        """Start a new worker in place of one that died; not called if the kind cannot die."""
        ...

    def dismiss(self, worker: Worker) -> None:
        """End a worker that holds no piece; none comes in its place."""
        ...

    def park(self) -> bool:
        """After a pass: whether the workers stay for the next one, with their counts reset to 0.

        False if a worker still holds a piece or if the kind does not rest; the caller then closes
        the backend.
        """
        ...

    def can_reuse(self, stage: Stage, clock: bool) -> bool:
        """Whether these resting workers can serve this stage as new ones would.

        If so, they are at work again. False if the program, the clock, the limits or the
        surroundings (working folder, environment) differ from those they were started with.
        """
        ...

    def close(self) -> None:
        """End the workers soon, whatever they are doing; delivered elements stay valid.

        May be called twice, and before ``start``.
        """
        ...


class BackendFactory(Protocol):
    """Makes a backend without starting any worker; most often a class of backends."""

    def __call__(self, stage: Stage, clock: bool) -> WorkerBackend:
        """A backend for ``stage``; with ``clock`` its workers time each operator.

        Raises:
            NotShippable: The program cannot travel.
        """
        ...


def create_backend(stage: Stage, clock: bool = False) -> WorkerBackend:
    """A new backend of the kind of worker that a stage asks for.

    Raises:
        InvalidFlow: There is no such factory as the kind names, or no module that it needs.
        NotShippable: The program cannot travel.
    """
    kind = stage.workers.kind
    try:
        factory: BackendFactory = resolve_name(kind.backend)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidFlow(f"prefetch: {kind.keyword} needs {kind.backend}: {error}") from error
    return factory(stage, clock)


@attrs.define
class Owner:
    """The process that made a backend, and to which the backend belongs."""

    process: int = attrs.field(factory=os.getpid)

    @property
    def is_here(self) -> bool:
        """Whether this process is the owner, and not a fork of it."""
        return os.getpid() == self.process

    def check(self) -> None:
        """Refuse to go on in a fork of the owner.

        Raises:
            FlowError: This process is one.
        """
        if not self.is_here:
            raise FlowError(FORKED)

"""A crew: workers of one kind, as a pool sees them.

A pool hands out pieces of work and receives events. Only the crew knows what its workers are
(processes, threads, or actors of a distributed engine) and how to reach them.
``flowdsl.testing.crews`` has tests of this protocol for crews of any kind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any, Protocol, TypeAlias

import attrs

from flowdsl.errors import FORKED, FlowError, InvalidFlow
from flowdsl.making.loop import Path
from flowdsl.making.make import Failure, Left, Made
from flowdsl.plan.plan import Stage
from flowdsl.workers.leases import Lease, Piece, Rows

SECONDS_TO_HEAR = 0.5
"""The longest time that ``Crew.hear`` waits for an event."""


@attrs.define(eq=False)
class Worker:
    """One worker, and the pieces of work that were given to it."""

    name: str
    """How messages call the worker, such as ``worker process 1234``."""
    ready: bool = False
    held: dict[int, Piece] = attrs.field(factory=dict[int, Piece])
    """The pieces given to the worker and not done yet, by lease number, the oldest first."""
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
    left: list[Left]
    failure: Failure | None
    seconds: float
    cpu: float
    times: list[float]
    costs: dict[Path, tuple[int, float]]


def result_of(made: Made, lease: Lease) -> Result:
    """The result to report for a lease, from what was made of it."""
    consecutive = list(range(lease.start, lease.start + len(made.elements)))
    return Result(
        lease.number,
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
    """The number of the last lease that it began, if any; of others it held it began none."""


Event: TypeAlias = Ready | Done | Died


class Crew(Protocol):
    """The workers of a stage.

    A crew belongs to the process that made it. In a fork of that process ``start``, ``give`` and
    ``hear`` raise a ``FlowError``, ``serves`` is False, and ``close`` and garbage collection leave
    the workers alone, which are not the fork's. An ``Owner`` tells a fork from the owning process.

    A crew that nothing refers to any more ends as if it were closed.
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

    def pack(self, rows: Rows) -> tuple[Any, int]:
        """Rows packed for a worker, and their bytes; raises if they cannot be sent."""
        ...

    def give(self, worker: Worker, piece: Piece) -> None:
        """Give a piece to a worker and add it to ``worker.held``.

        The caller of ``hear`` removes it when the piece is done or its worker has died.
        """
        ...

    def hear(self) -> list[Event]:
        """The events since the last call, each once.

        Waits for an event for ``SECONDS_TO_HEAR`` at most, or until ``wake``, and gives an empty
        list if none came. Raises any error after which no worker can continue.
        """
        ...

    def wake(self) -> None:
        """End the wait of a ``hear`` that is under way, or else of the next one.

        It is called from another thread, between ``start`` and ``close``.
        """
        ...

    def replace(self, worker: Worker) -> None:
        """Start a new worker in place of one that died; not called if the kind cannot die."""
        ...

    def dismiss(self, worker: Worker) -> None:
        """End a worker that holds no piece; none comes in its place."""
        ...

    def rest(self) -> bool:
        """After a pass: whether the workers stay for the next one, with their counts reset to 0.

        False if a worker still holds a piece or if the kind does not rest; the caller then closes
        the crew.
        """
        ...

    def serves(self, stage: Stage, clock: bool) -> bool:
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


class Factory(Protocol):
    """Makes a crew without starting any worker; most often a class of crews."""

    def __call__(self, stage: Stage, clock: bool) -> Crew:
        """A crew for ``stage``; with ``clock`` its workers time each operator.

        Raises:
            NotShippable: The program cannot travel.
        """
        ...


def hire(stage: Stage, clock: bool = False) -> Crew:
    """A new crew of the kind of worker that a stage asks for.

    Raises:
        InvalidFlow: There is no such factory as the kind names, or no module that it needs.
        NotShippable: The program cannot travel.
    """
    kind = stage.workers.kind
    try:
        factory: Factory = resolve_name(kind.crew)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidFlow(f"prefetch: {kind.keyword} needs {kind.crew}: {error}") from error
    return factory(stage, clock)


@attrs.define
class Owner:
    """The process that made a crew, and to which the crew belongs."""

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

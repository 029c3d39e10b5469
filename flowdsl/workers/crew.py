"""A crew: workers of one kind, as a pool sees them.

A pool gives pieces of work and hears of events. What a worker is, and how it is reached, only its
crew knows: a process, a thread, or an actor of a distributed engine. ``flowdsl.testing.crews`` has
the laws of the protocol, for a crew of any kind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any, Protocol, TypeAlias

import attrs

from flowdsl.errors import FlowError, InvalidFlow
from flowdsl.making.loop import Path
from flowdsl.making.make import Failure, Left, Made
from flowdsl.plan.plan import Stage
from flowdsl.workers.leases import Lease, Piece

FORKED = (
    "this run belongs to the process that began it, of which this is a fork; iterate the flow "
    "itself here, which begins a run of its own"
)

SECONDS_TO_HEAR = 0.5
"""For so long does a crew wait to hear of something."""


@attrs.define(eq=False)
class Worker:
    """One worker, and what it has in hand."""

    name: str
    """For messages, such as ``worker process 1234``."""
    ready: bool = False
    held: dict[int, Piece] = attrs.field(factory=dict[int, Piece])
    """The pieces in hand by number, the oldest first."""
    elements: int = 0
    busy: float = 0.0
    cpu: float = 0.0


@attrs.frozen
class Result:
    """What became of a piece."""

    number: int
    count: int
    positions: list[int] | None
    """The position of each element, where a filter left gaps; else they are consecutive."""
    filtered: int
    left: list[Left]
    failure: Failure | None
    seconds: float
    cpu: float
    times: list[float]
    costs: dict[Path, tuple[int, float]]


def result_of(made: Made, lease: Lease) -> Result:
    """What there is to say of what was made of a lease."""
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
        """The memory that they take."""
        ...

    def open(self) -> Sequence[Any]:
        """Take them."""
        ...

    def discard(self) -> None:
        """Nobody will."""
        ...


@attrs.frozen
class Ready:
    """A worker can be given work."""

    worker: Worker


@attrs.frozen
class Done:
    """A worker has done a piece."""

    worker: Worker
    result: Result
    delivery: Delivery


@attrs.frozen
class Died:
    """A worker has ended, or was ended; what it had in hand is not done."""

    worker: Worker
    how: str
    """For messages, such as ``signal SIGKILL``."""
    begun: int | None = None
    """The number of the last lease that it began, if any; others in hand it had not looked at."""


Event: TypeAlias = Ready | Done | Died


class Crew(Protocol):
    """The workers of a stage.

    A crew belongs to the process that made it. In a fork of that process ``start``, ``give`` and
    ``hear`` raise a ``FlowError``, ``serves`` is False, and neither ``close`` nor the end of the
    crew itself touches the workers, which are not the fork's. An ``Owner`` tells where it is.

    One that nobody holds any more ends as if it were closed.
    """

    @property
    def workers(self) -> list[Worker]:
        """Those at work now; none before the start."""
        ...

    def start(self) -> None:
        """Have as many workers at work as the stage asks for, or on their way to it.

        Those that are there already stay.
        """
        ...

    def pack(self, rows: list[list[Any]]) -> tuple[Any, int]:
        """Rows as they travel to a worker, and their bytes; fails for what cannot."""
        ...

    def give(self, worker: Worker, piece: Piece) -> None:
        """Hand out a piece, which stands in ``worker.held`` from now on.

        Whoever hears what became of it takes it out.
        """
        ...

    def hear(self) -> list[Event]:
        """What has happened since, each event once.

        Waits for something to happen, ``SECONDS_TO_HEAR`` at most; gives nothing if nothing has.
        Raises what no worker can go on after.
        """
        ...

    def replace(self, worker: Worker) -> None:
        """Put a new worker in the place of one that has died; asked for none that cannot."""
        ...

    def rest(self) -> bool:
        """A pass is over: whether the workers stay for another, with their counts at 0.

        They do not if one still holds a piece, or if the kind does not rest. Then they are closed.
        """
        ...

    def serves(self, stage: Stage, clock: bool) -> bool:
        """Whether these workers, which rest, are as good for this stage as new ones.

        If so, they are at work again. They run what they were started with: any other program,
        clock or limits are not theirs, and neither are surroundings that have changed.
        """
        ...

    def close(self) -> None:
        """End the workers, soon, whatever they are doing. What the consumer was given stays valid.

        May be called twice, and before the start.
        """
        ...


class Factory(Protocol):
    """Makes a crew, of which nothing is started yet: a class of crews, most often."""

    def __call__(self, stage: Stage, clock: bool) -> Crew:
        """For this stage, with ``clock`` timing each operator.

        Raises:
            NotShippable: The program cannot travel.
        """
        ...


def hire(stage: Stage, clock: bool = False) -> Crew:
    """A new crew of the kind that a stage asks for.

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
    """The process that a crew belongs to, which made it."""

    process: int = attrs.field(factory=os.getpid)

    @property
    def is_here(self) -> bool:
        """It is this process, which is no fork of it."""
        return os.getpid() == self.process

    def check(self) -> None:
        """Refuse a fork.

        Raises:
            FlowError: This process is one.
        """
        if not self.is_here:
            raise FlowError(FORKED)

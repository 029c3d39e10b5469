"""A crew: workers of one kind, as a pool sees them.

A pool gives pieces of work and hears of events; whether a worker is a process or a thread is the
crew's to know. An actor of a distributed engine would be a third kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from flowdsl.making.loop import Path
from flowdsl.making.make import Failure, Left, Made
from flowdsl.workers.leases import Lease, Piece


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
    """The workers of a stage."""

    @property
    def workers(self) -> list[Worker]:
        """Those at work now."""
        ...

    def start(self) -> None:
        """Have all workers at work, or on their way to it."""
        ...

    def pack(self, rows: list[list[Any]]) -> tuple[Any, int]:
        """Rows as they travel to a worker, and their bytes; fails for what can not."""
        ...

    def give(self, worker: Worker, piece: Piece) -> None:
        """Hand out a piece, which the worker holds from now on."""
        ...

    def hear(self) -> list[Event]:
        """What has happened; waits for something to happen, for a while at most."""
        ...

    def replace(self, worker: Worker) -> None:
        """Put a new worker in the place of one that has died."""
        ...

    def close(self) -> None:
        """End the workers. What the consumer was given stays valid."""
        ...

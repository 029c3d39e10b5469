"""Leases: the work of a pass cut into numbered pieces, and the size of each."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import count, islice
from typing import Any, TypeAlias

import attrs

from flowdsl.arguments import the_element
from flowdsl.errors import ElementError
from flowdsl.making.program import CutShort, OperatorFailed, Program, failure_in, needed
from flowdsl.node import Addresses, Passes, Row
from flowdsl.plan.plan import Base, Lookup, Stage
from flowdsl.workers.read_ahead import ReadAhead
from flowdsl.workers.wire import first_unpackable

SECONDS_A_LEASE = 0.03
"""The seconds that a lease should take: long beside a message, short to wait for."""

SECONDS_A_SMALL_LEASE = 0.15
"""The seconds that a lease with a small result should take. Around each lease, worker and consumer
do about a millisecond of other work on cold caches, 2.4% of 0.03 seconds; a large result would
itself be out of the caches by its end."""

BYTES_A_LEASE = 8 << 20
BYTES_A_SMALL_LEASE = 1 << 20
BYTES_IN_FLIGHT = 1 << 30
"""The bytes that may be in flight unless ``memory`` is given."""

MOST_A_LEASE = 4096


@attrs.frozen
class Lease:
    """A unit of work: some consecutive elements of a stage's output."""

    number: int
    """Counts from 0 over the life of a pool and is never reused: if the same work is done before
    and after a worker's death, the number tells which result is stale."""
    epoch: int
    start: int
    stop: int
    positions: list[int] | None = None
    """The position of each element if the stage's base left gaps; None if they are consecutive."""

    @property
    def first(self) -> int:
        """The position of the lease's first element."""
        return self.start if self.positions is None else self.positions[0]

    def addresses(self) -> Addresses:
        """The addresses of the elements to make."""
        if self.positions is None:
            return Addresses.span(self.epoch, self.start, self.stop)
        return Addresses.at(self.epoch, self.positions)


Rows: TypeAlias = Sequence[Sequence[Any] | CutShort]
"""The rows of each base that a lease needs, in the order in which they are used."""


@attrs.frozen
class Piece:
    """A lease, with the rows that the consumer's process supplies for it."""

    lease: Lease
    rows: Rows = attrs.field(factory=list[Any], repr=False)
    """The rows of each base, in the order in which they are used."""
    packed: Any = attrs.field(default=None, repr=False)
    """The rows in the form that is sent to a worker."""
    nbytes: int = 0
    """The bytes that are sent."""
    deaths: int = 0
    """The workers that have died on this piece, or on a larger piece that it was cut from."""

    @property
    def size(self) -> int:
        return self.lease.stop - self.lease.start


Pack: TypeAlias = Callable[[Rows], tuple[Any, int]]
"""Packs rows for sending; gives them and their bytes, or raises if they cannot be sent."""


class Pace:
    """How many elements a lease should hold, from the cost of the last leases."""

    def __init__(
        self, workers: int, nbytes: int = BYTES_A_LEASE, timeout: float | None = None
    ) -> None:
        """For ``workers`` workers; ``nbytes`` is the most that the result of a lease should take.

        A lease should take a fifth of ``timeout`` seconds at most, so that it is not mistaken for
        an element that never ends.
        """
        self._timeout = timeout
        self.share(workers, nbytes)
        self._size = 1

    def share(self, workers: int, nbytes: int) -> None:
        """Cut leases for another number of workers, and other bytes for a result, from now on."""
        self._workers = workers
        timeout = self._timeout
        self._most = [
            (seconds if timeout is None else min(seconds, timeout / 5), min(nbytes, most))
            for seconds, most in (
                (SECONDS_A_LEASE, BYTES_A_LEASE),
                (SECONDS_A_SMALL_LEASE, BYTES_A_SMALL_LEASE),
            )
        ]
        """Pairs of limits in seconds and bytes; a lease may grow as far as any one pair allows."""

    def size(self, remaining: int | None) -> int:
        """The size of the next lease; near the end of a pass, at most a fair share of the rest."""
        if remaining is None:
            return self._size
        return max(1, min(self._size, remaining // (2 * self._workers)))

    @property
    def ahead(self) -> int:
        """How many elements a stream is read ahead: two leases for each worker."""
        return 2 * self._workers * self._size

    def observe(self, count: int, seconds: float, nbytes: int) -> None:
        """Adjust the size to the cost of a finished lease."""
        each, size = max(seconds, 1e-6) / count, max(nbytes, 1) / count
        allowed = max(min(most / each, large / size) for most, large in self._most)
        self._size = int(max(1, min(allowed, 2 * self._size, MOST_A_LEASE)))


@attrs.define
class Work:
    """Cuts the work of a stage into pieces, each with the rows that it needs from this process."""

    stage: Stage
    bases: tuple[Passes, ...]
    """Functions that begin a pass over a base of the stage; empty unless its base is a stream."""
    pace: Pace
    pack: Pack
    close: Callable[[], None] = lambda: None
    """Closes what the stream reads, in the thread that does."""
    wake: Callable[[], None] | None = None
    """Called in that thread when there are rows that were not there."""
    memory: int = BYTES_IN_FLIGHT
    """The most bytes of the stream that may be read ahead of the workers."""
    reading: ReadAhead[Any] | None = attrs.field(default=None, init=False)
    """The reader of the stream in the pass that is under way."""
    numbers: Iterator[int] = attrs.field(factory=count)
    programs: list[Program] = attrs.field(factory=list[Program])
    """The programs of the bases whose rows lie in this process's memory."""
    failures: dict[int, Exception] = attrs.field(factory=dict[int, Exception])
    """The errors of the bases that failed in this pass, by their numbers."""

    def __attrs_post_init__(self) -> None:
        self.programs.extend(Program(b.top.node) for b in self.stage.bases if isinstance(b, Lookup))

    def pieces(self, epoch: int, start: int) -> Iterator[Piece | None]:
        """The pieces of one pass, from the element ``start`` on; None where one is not there yet.

        A stream is read ahead, in a thread, which ``wake`` tells of the rows that were not there.
        If a base fails, the last piece is of the elements up to the one that cannot be made, with
        the rows that there are, and ``CutShort``.

        Raises:
            ElementError: A base failed, after the pieces of all that was before it.
        """
        self.failures.clear()
        if self.programs:
            yield from self._looked_up(self._spans(epoch, start))
        elif self.bases:
            yield from self._streamed(epoch, start)
        else:
            yield from map(Piece, self._spans(epoch, start))
        if self.failures:
            raise next(iter(self.failures.values()))

    @property
    def streams(self) -> bool:
        """Whether the rows come one after another; if not, each is reached by its position."""
        return bool(self.bases)

    def split(self, piece: Piece) -> list[Piece]:
        """The piece cut into pieces of one element each, with new numbers."""
        lease = piece.lease
        singles = [
            Lease(
                next(self.numbers),
                lease.epoch,
                i,
                i + 1,
                None if lease.positions is None else lease.positions[i - lease.start :][:1],
            )
            for i in range(lease.start, lease.stop)
        ]
        if self.programs:
            parts = list(self._looked_up(iter(singles)))
        elif not self.bases:
            parts = list(map(Piece, singles))
        else:
            ratio = self.stage.rows_per_element
            (rows,) = piece.rows
            assert not isinstance(rows, CutShort), "one of a stream is for a single element"
            own = ([rows[k * ratio : (k + 1) * ratio]] for k in range(len(singles)))
            parts = [
                Piece(single, mine, *self.pack(mine))
                for single, mine in zip(singles, own, strict=True)
            ]
        return [attrs.evolve(part, deaths=piece.deaths) for part in parts]

    def again(self, piece: Piece) -> Piece:
        """The same piece under a new number."""
        return attrs.evolve(piece, lease=attrs.evolve(piece.lease, number=next(self.numbers)))

    def _spans(self, epoch: int, start: int) -> Iterator[Lease]:
        end = None if self.stage.end_to_end else self.stage.positions
        while end is None or start < end:
            size = self.pace.size(None if end is None else end - start)
            stop = start + size if end is None else min(start + size, end)
            yield Lease(next(self.numbers), epoch, start, stop)
            start = stop

    def _looked_up(self, leases: Iterator[Lease]) -> Iterator[Piece]:
        """Pieces from rows in this process's memory: each takes along the rows it needs."""
        bases = self.stage.bases
        for lease in leases:
            wanted = needed(self.stage.program, lease.addresses())
            rows: list[list[Any]] = []
            failures: dict[int, Exception] = {}
            for slot, (base, program) in enumerate(zip(bases, self.programs, strict=True)):
                found, failed = _look_up(base, program, wanted[slot])
                rows.append(found)
                if failed is not None:
                    failures[slot] = failed
            packed, bad = self._packed(rows)
            for slot, (i, cause) in bad.items():
                x = rows[slot][i]
                failures[slot] = _can_not_travel(bases[slot], wanted[slot], i, cause, x)
                del rows[slot][i:]
            if failures:
                self.failures.update(failures)
                yield self._cut_short(lease, rows, failures)
                return
            yield Piece(lease, rows, *packed)

    def _cut_short(self, lease: Lease, found: list[list[Any]], failed: Container[int]) -> Piece:
        rows = [CutShort(one, slot) if slot in failed else one for slot, one in enumerate(found)]
        return Piece(lease, rows, *self.pack(rows))

    def _streamed(self, epoch: int, start: int) -> Iterator[Piece | None]:
        """Pieces from a stream: each has what rows are there, up to a lease of them."""
        (read,), (base,), ratio = self.bases, self.stage.bases, self.stage.rows_per_element
        pace = self.pace  # the thread must not hold this: the crew would be kept with it
        stream: ReadAhead[Any] = ReadAhead(
            base.top.node.title,
            lambda: islice(read(epoch), start * ratio, None),
            self.close,
            lambda: pace.ahead * ratio,
            self.memory,
            self.wake,
        )
        self.reading = stream
        try:
            yield from self._cut(stream, epoch, start)
        finally:
            stream.stop()

    def _cut(self, stream: ReadAhead[Any], epoch: int, start: int) -> Iterator[Piece | None]:
        ratio, (base,) = self.stage.rows_per_element, self.stage.bases
        ended = False
        while not ended and not self.failures:
            rows = stream.take(self.pace.size(None) * ratio, ratio)
            if rows is None:
                yield None
                continue
            ended = not rows or bool(len(rows) % ratio)
            if ended and stream.error is not None:
                if not isinstance(stream.error, Exception):
                    raise stream.error
                self.failures[0] = stream.error
            packed, bad = self._packed([[x for _, x in rows]])
            if bad:
                at = Addresses.at(epoch, [position for position, _ in rows])
                i, cause = bad[0]
                self.failures[0] = _can_not_travel(base, at, i, cause, rows[i][1])
                del rows[i:]
            rest: list[Row[Any]] = []
            if self.failures:  # what there is of the element that cannot be made
                whole = len(rows) - len(rows) % ratio
                rows, rest = rows[:whole], rows[whole:]
                packed = self.pack([[x for _, x in rows]])
            if stop := self.stage.elements_of(len(rows)):
                stop += start
                positions = [position for position, _ in rows] if ratio == 1 else None
                if positions == list(range(start, stop)):
                    positions = None
                lease = Lease(next(self.numbers), epoch, start, stop, positions)
                yield Piece(lease, [[x for _, x in rows]], *packed)
                start = stop
            if rest:
                one = Lease(next(self.numbers), epoch, start, start + 1)
                yield self._cut_short(one, [[x for _, x in rest]], self.failures)

    def _packed(
        self, rows: list[list[Any]]
    ) -> tuple[tuple[Any, int], dict[int, tuple[int, Exception]]]:
        """The packed rows, or the first row of each base that cannot be sent, and why."""
        try:
            return self.pack(rows), {}
        except Exception:
            bad = {slot: first_unpackable(found) for slot, found in enumerate(rows)}
            if not any(bad.values()):
                raise
            return (None, 0), {slot: one for slot, one in bad.items() if one is not None}


def _look_up(base: Base, program: Program, at: Addresses) -> tuple[list[Any], Exception | None]:
    """The rows of a base at these addresses up to the first that fails, and its error."""
    rows: list[Any] = []
    try:
        for _, x in program.rows(at):
            rows.append(x)  # rows before a failure are used
    except OperatorFailed as error:
        failed = failure_in(base, *error.args)
        failed.__cause__ = error.__cause__
        return rows, failed
    return rows, None


def _can_not_travel(base: Base, at: Addresses, i: int, cause: Exception, x: object) -> ElementError:
    """The error for an element of the base that cannot be sent to a worker."""
    error = base.top.node.failure(int(at.epoch[i]), int(at.position[i]), the_element(x))
    error.__cause__ = cause
    return error

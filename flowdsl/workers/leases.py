"""Leases: the work of a pass in numbered pieces, and how large a piece should be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, TypeAlias

import attrs

from flowdsl.arguments import the_element
from flowdsl.errors import ElementError
from flowdsl.making.program import OperatorFailed, Program, failure_in, needed
from flowdsl.node import Addresses, Passes, Row
from flowdsl.plan.plan import Base, Lookup, Stage
from flowdsl.workers.wire import first_unpackable

SECONDS_A_LEASE = 0.03
"""What a lease should cost: many messages' worth of work, and little to wait for."""

SECONDS_A_SMALL_LEASE = 0.15
"""What a lease should cost whose result is small. Around each, worker and consumer do about a
millisecond of other work on cold caches, 2.4% of 0.03 seconds; a large result would itself be cold
by its end."""

SECONDS_A_READ = 0.01
"""For so long a stream is read at a time."""

BYTES_A_LEASE = 8 << 20
BYTES_A_SMALL_LEASE = 1 << 20
BYTES_IN_FLIGHT = 1 << 30
"""Where ``memory`` says nothing else."""

MOST_A_LEASE = 4096


@attrs.frozen
class Lease:
    """Work: some consecutive elements of a stage's output."""

    number: int
    """Counts from 0 over the life of a pool, and is never given twice: of two results of the same
    work, made before and after a death, one is known to be stale."""
    epoch: int
    start: int
    stop: int
    positions: list[int] | None = None
    """The position of each element, where the stage's base left gaps; else they are consecutive."""

    @property
    def first(self) -> int:
        """The position of its first element."""
        return self.start if self.positions is None else self.positions[0]

    def addresses(self) -> Addresses:
        """What is to be made."""
        if self.positions is None:
            return Addresses.span(self.epoch, self.start, self.stop)
        return Addresses.at(self.epoch, self.positions)


@attrs.frozen
class Piece:
    """A lease, with the rows of this process that it is made of."""

    lease: Lease
    rows: list[list[Any]] = attrs.field(factory=list[list[Any]], repr=False)
    """Of each base, in the order in which they are used."""
    packed: Any = attrs.field(default=None, repr=False)
    """The rows as they travel."""
    nbytes: int = 0
    """Of what travels."""
    deaths: int = 0
    """How many workers have died on it, or on a larger piece that it was part of."""

    @property
    def size(self) -> int:
        return self.lease.stop - self.lease.start


Pack: TypeAlias = Callable[[list[list[Any]]], tuple[Any, int]]
"""Makes rows ready to travel; gives them and their bytes, or fails for what cannot."""


class Pace:
    """How many elements a lease should hold, from what the last ones cost."""

    def __init__(
        self, workers: int, nbytes: int = BYTES_A_LEASE, timeout: float | None = None
    ) -> None:
        """``nbytes`` are what the result of a lease should hold at most.

        A lease should take a fifth of ``timeout`` seconds at most, so that one is not taken for an
        element that never ends.
        """
        self._workers = workers
        self._most = [
            (seconds if timeout is None else min(seconds, timeout / 5), min(nbytes, most))
            for seconds, most in (
                (SECONDS_A_LEASE, BYTES_A_LEASE),
                (SECONDS_A_SMALL_LEASE, BYTES_A_SMALL_LEASE),
            )
        ]
        """Seconds and bytes: a lease may grow to what is allowed by any of the pairs."""
        self._size = 1

    def size(self, remaining: int | None) -> int:
        """For the next lease; towards the end of a pass, no more than a fair share of the rest."""
        if remaining is None:
            return self._size
        return max(1, min(self._size, remaining // (2 * self._workers)))

    def observe(self, count: int, seconds: float, nbytes: int) -> None:
        """Learn from a finished lease."""
        each, size = max(seconds, 1e-6) / count, max(nbytes, 1) / count
        allowed = max(min(most / each, large / size) for most, large in self._most)
        self._size = int(max(1, min(allowed, 2 * self._size, MOST_A_LEASE)))


@attrs.frozen
class Work:
    """The work of a stage in pieces, each with the rows that it is supplied with, if any."""

    stage: Stage
    bases: tuple[Passes, ...]
    """Passes over the stage's bases, where they are streams."""
    pace: Pace
    pack: Pack
    numbers: Iterator[int] = attrs.field(factory=count)
    programs: list[Program] = attrs.field(factory=list[Program])
    """Of the bases whose rows lie in memory."""

    def __attrs_post_init__(self) -> None:
        self.programs.extend(Program(b.top.node) for b in self.stage.bases if isinstance(b, Lookup))

    def pieces(self, epoch: int, start: int) -> Iterator[Piece]:
        """One pass, from an element on.

        Raises:
            ElementError: A base failed, after the pieces of all that was before it.
        """
        if self.programs:
            return self._looked_up(self._spans(epoch, start))
        if self.bases:
            return self._streamed(epoch, start)
        return map(Piece, self._spans(epoch, start))

    @property
    def streams(self) -> bool:
        """Its rows come one after another; else each is reached by its position."""
        return bool(self.bases)

    def split(self, piece: Piece) -> list[Piece]:
        """The work of a piece, in pieces of one element with new numbers."""
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
            own = ([rows[k * ratio : (k + 1) * ratio]] for k in range(len(singles)))
            parts = [
                Piece(single, mine, *self.pack(mine))
                for single, mine in zip(singles, own, strict=True)
            ]
        return [attrs.evolve(part, deaths=piece.deaths) for part in parts]

    def again(self, piece: Piece) -> Piece:
        """The work of a piece, under a new number."""
        return attrs.evolve(piece, lease=attrs.evolve(piece.lease, number=next(self.numbers)))

    def _spans(self, epoch: int, start: int) -> Iterator[Lease]:
        end = None if self.stage.whole else self.stage.positions
        while end is None or start < end:
            size = self.pace.size(None if end is None else end - start)
            stop = start + size if end is None else min(start + size, end)
            yield Lease(next(self.numbers), epoch, start, stop)
            start = stop

    def _looked_up(self, leases: Iterator[Lease]) -> Iterator[Piece]:
        """From rows in this process's memory: those that a span is made of go with it."""
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
                rows[slot] = rows[slot][:i]
            if not failures:
                yield Piece(lease, rows, *packed)
                continue
            stop, used, short = self._whole(lease, [len(found) for found in rows])
            if stop > lease.start:
                whole = [found[:count] for found, count in zip(rows, used, strict=True)]
                yield Piece(attrs.evolve(lease, stop=stop), whole, *self.pack(whole))
            raise failures[short]

    def _whole(self, lease: Lease, rows: list[int]) -> tuple[int, list[int], int]:
        """Up to where a lease can be made of so many rows of each base.

        Gives its end, how many rows of each that takes, and the base that falls short there.
        """
        used = [0] * len(rows)
        for stop in range(lease.start, lease.stop):
            at = Addresses.span(lease.epoch, lease.start, stop + 1)
            wanted = needed(self.stage.program, at)
            counts = [len(wanted[slot].position) for slot in range(len(rows))]
            short = (slot for slot, count in enumerate(counts) if count > rows[slot])
            if (first := next(short, None)) is not None:
                return stop, used, first
            used = counts
        raise AssertionError("a base failed at a row that the lease does not need")

    def _streamed(self, epoch: int, start: int) -> Iterator[Piece]:
        """From a stream: as many rows as come in the time that a lease should cost."""
        (read,), (base,) = self.bases, self.stage.bases
        ratio = self.stage.rows_per_element
        stream = islice(read(epoch), start * ratio, None)
        ended = False
        while not ended:
            rows: list[Row[Any]] = []
            failed: Exception | None = None
            deadline = time.monotonic() + SECONDS_A_READ
            for _ in range(self.pace.size(None)):
                try:
                    group = list(islice(stream, ratio))
                except Exception as error:
                    failed, group = error, []
                rows += group
                ended = len(group) < ratio
                if ended or time.monotonic() > deadline:
                    break
            packed, bad = self._packed([[x for _, x in rows]])
            if bad:
                at = Addresses.at(epoch, [position for position, _ in rows])
                i, cause = bad[0]
                failed = _can_not_travel(base, at, i, cause, rows[i][1])
                rows = rows[: i - i % ratio]
                packed = self.pack([[x for _, x in rows]])
            if stop := self.stage.elements_of(len(rows)):
                stop += start
                positions = [position for position, _ in rows] if ratio == 1 else None
                if positions == list(range(start, stop)):
                    positions = None
                lease = Lease(next(self.numbers), epoch, start, stop, positions)
                yield Piece(lease, [[x for _, x in rows]], *packed)
                start = stop
            if failed is not None:
                raise failed

    def _packed(
        self, rows: list[list[Any]]
    ) -> tuple[tuple[Any, int], dict[int, tuple[int, Exception]]]:
        """Rows as they travel, or the first of each base that cannot, and why."""
        try:
            return self.pack(rows), {}
        except Exception:
            bad = {slot: first_unpackable(found) for slot, found in enumerate(rows)}
            if not any(bad.values()):
                raise
            return (None, 0), {slot: one for slot, one in bad.items() if one is not None}


def _look_up(base: Base, program: Program, at: Addresses) -> tuple[list[Any], Exception | None]:
    """The rows of a base at these addresses, up to one that fails, and why."""
    rows: list[Any] = []
    try:
        for _, x in program.rows(at):
            rows.append(x)  # what came before a failure counts
    except OperatorFailed as error:
        failed = failure_in(base, *error.args)
        failed.__cause__ = error.__cause__
        return rows, failed
    return rows, None


def _can_not_travel(base: Base, at: Addresses, i: int, cause: Exception, x: object) -> ElementError:
    """The error for an element of the base that no worker can be given."""
    error = base.top.node.failure(int(at.epoch[i]), int(at.position[i]), the_element(x))
    error.__cause__ = cause
    return error

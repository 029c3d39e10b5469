"""Leases: the work of a pass in numbered pieces, and how large a piece should be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import attrs

from flowdsl.errors import ElementError
from flowdsl.node import Addresses, AnyNode, Row
from flowdsl.plan.lower import Stage
from flowdsl.runtime.program import OperatorFailed, Program, failure_in, needed
from flowdsl.runtime.wire import Frame, first_unpackable, supply

SECONDS_A_LEASE = 0.01
"""What a lease should cost: many messages' worth of work, and little to wait for."""

BYTES_A_LEASE = 8 << 20
MOST_A_LEASE = 4096


@attrs.frozen
class Lease:
    """Work: some consecutive elements of a stage's output."""

    number: int
    """Counts from 0 over the life of a pool; results are put back in this order."""
    epoch: int
    start: int
    stop: int
    positions: list[int] | None = None
    """The position of each element, where the stage's base left gaps; else they are consecutive."""

    def addresses(self) -> Addresses:
        """What is to be made."""
        if self.positions is None:
            return Addresses.span(self.epoch, self.start, self.stop)
        return Addresses.at(self.epoch, self.positions)


class Pace:
    """How many elements a lease should hold, from what the last ones cost."""

    def __init__(self, procs: int) -> None:
        self._procs = procs
        self._size = 1

    def size(self, remaining: int | None) -> int:
        """For the next lease; towards the end of a pass, no more than a fair share of the rest."""
        if remaining is None:
            return self._size
        return max(1, min(self._size, remaining // (2 * self._procs)))

    def observe(self, count: int, seconds: float, nbytes: int) -> None:
        """Learn from a finished lease."""
        by_time = SECONDS_A_LEASE * count / max(seconds, 1e-6)
        by_bytes = BYTES_A_LEASE * count / max(nbytes, 1)
        self._size = int(max(1, min(by_time, by_bytes, 2 * self._size, MOST_A_LEASE)))


@attrs.frozen
class Work:
    """The leases of a stage, each with the elements that it is supplied with, if any."""

    stage: Stage
    bases: tuple[AnyNode, ...]
    """The stage's bases, ready to iterate in this process."""
    pace: Pace
    numbers: Iterator[int] = attrs.field(factory=count)

    def leases(self, epoch: int, start: int) -> Iterator[tuple[Lease, list[Frame]]]:
        """One pass, from an element on, each with the frames of what it is supplied with.

        Raises:
            ElementError: A base failed, after the leases of all that was before it.
        """
        if not self.bases:
            return ((lease, []) for lease in self._spans(epoch, start))
        in_memory = [base for base in self.bases if isinstance(base, Stage)]
        if in_memory:
            return self._looked_up(in_memory, epoch, start)
        (stream,) = self.bases
        return self._streamed(stream, epoch, start)

    def _spans(self, epoch: int, start: int) -> Iterator[Lease]:
        end = _last_position(self.stage)
        while end is None or start < end:
            size = self.pace.size(None if end is None else end - start)
            stop = start + size if end is None else min(start + size, end)
            yield Lease(next(self.numbers), epoch, start, stop)
            start = stop

    def _looked_up(
        self, bases: list[Stage], epoch: int, start: int
    ) -> Iterator[tuple[Lease, list[Frame]]]:
        """From rows in this process's memory: those that a span is made of go with it."""
        programs = [Program(base.program) for base in bases]
        for lease in self._spans(epoch, start):
            wanted = needed(self.stage.program, lease.addresses())
            rows: list[list[Any]] = []
            failures: dict[int, Exception] = {}
            for slot, (base, program) in enumerate(zip(bases, programs, strict=True)):
                found, failed = _look_up(base, program, wanted[slot])
                rows.append(found)
                if failed is not None:
                    failures[slot] = failed
            frames, bad = _frames(rows)
            for slot, (i, cause) in bad.items():
                failures[slot] = _can_not_travel(bases[slot], wanted[slot], i, cause)
                rows[slot] = rows[slot][:i]
            if not failures:
                yield lease, frames
                continue
            stop, used, short = self._whole(lease, [len(found) for found in rows])
            if stop > lease.start:
                whole = [found[:count] for found, count in zip(rows, used, strict=True)]
                yield attrs.evolve(lease, stop=stop), supply(whole)
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

    def _streamed(
        self, base: AnyNode, epoch: int, start: int
    ) -> Iterator[tuple[Lease, list[Frame]]]:
        """From a stream: as many rows as come in the time that a lease should cost."""
        ratio = self.stage.rows_per_element
        stream = islice(base.rows(epoch), start * ratio, None)
        ended = False
        while not ended:
            rows: list[Row[Any]] = []
            failed: Exception | None = None
            deadline = time.monotonic() + SECONDS_A_LEASE
            for _ in range(self.pace.size(None)):
                try:
                    group = list(islice(stream, ratio))
                except Exception as error:
                    failed, group = error, []
                rows += group
                ended = len(group) < ratio
                if ended or time.monotonic() > deadline:
                    break
            frames, bad = _frames([[x for _, x in rows]])
            if bad:
                at = Addresses.at(epoch, [position for position, _ in rows])
                i, cause = bad[0]
                failed = _can_not_travel(base, at, i, cause)
                rows = rows[: i - i % ratio]
                frames, _ = _frames([[x for _, x in rows]])
            if rows:
                stop = start - (-len(rows) // ratio)
                positions = [position for position, _ in rows] if ratio == 1 else None
                if positions == list(range(start, stop)):
                    positions = None
                yield Lease(next(self.numbers), epoch, start, stop, positions), frames
                start = stop
            if failed is not None:
                raise failed


def _look_up(base: Stage, program: Program, at: Addresses) -> tuple[list[Any], Exception | None]:
    """The rows of a base at these addresses, up to one that fails, and why."""
    rows: list[Any] = []
    try:
        for _, x in program.rows(at):
            rows.append(x)  # what came before a failure counts
    except OperatorFailed as error:
        failed = failure_in(base.meaning, *error.args)
        failed.__cause__ = error.__cause__
        return rows, failed
    return rows, None


def _frames(rows: list[list[Any]]) -> tuple[list[Frame], dict[int, tuple[int, Exception]]]:
    """The frames of rows, a list a base; or the first of each that can not travel, and why."""
    try:
        return supply(rows), {}
    except Exception:
        bad = {slot: first_unpackable(found) for slot, found in enumerate(rows)}
        if not any(bad.values()):
            raise
        return [], {slot: one for slot, one in bad.items() if one is not None}


def _can_not_travel(base: AnyNode, at: Addresses, i: int, cause: Exception) -> ElementError:
    """The error for an element of the base that no worker can be given."""
    error = base.failure(int(at.epoch[i]), int(at.position[i]))
    error.__cause__ = cause
    return error


def _last_position(stage: Stage) -> int | None:
    """The end of the positions to lease: the stage's own length, or that of what it filters."""
    node = stage.meaning
    while not node.indexable:
        node = node.sources[0]
    return node.length

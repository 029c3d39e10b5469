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
from flowdsl.runtime.program import OperatorFailed, Program, base_addresses, failure_in
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
    base: AnyNode | None
    """The stage's base, ready to iterate in this process."""
    pace: Pace
    numbers: Iterator[int] = attrs.field(factory=count)

    def leases(self, epoch: int, start: int) -> Iterator[tuple[Lease, list[Frame]]]:
        """One pass, from an element on, each with the frames of what it is supplied with.

        Raises:
            ElementError: The base failed, after the leases of all that was before it.
        """
        if self.base is None:
            return ((lease, []) for lease in self._spans(epoch, start))
        if isinstance(self.base, Stage):
            return self._looked_up(self.base, epoch, start)
        return self._streamed(self.base, epoch, start)

    def _spans(self, epoch: int, start: int) -> Iterator[Lease]:
        end = _last_position(self.stage)
        while end is None or start < end:
            size = self.pace.size(None if end is None else end - start)
            stop = start + size if end is None else min(start + size, end)
            yield Lease(next(self.numbers), epoch, start, stop)
            start = stop

    def _looked_up(
        self, base: Stage, epoch: int, start: int
    ) -> Iterator[tuple[Lease, list[Frame]]]:
        """From rows in this process's memory: those that a span is made of go with it."""
        program = Program(base.program)
        for lease in self._spans(epoch, start):
            at = base_addresses(self.stage.meaning, base.meaning, lease.addresses())
            rows: list[Any] = []
            failed: Exception | None = None
            try:
                for _, x in program.rows(at):
                    rows.append(x)  # what came before a failure counts
            except OperatorFailed as error:
                failed = failure_in(base.meaning, *error.args)
                failed.__cause__ = error.__cause__
            frames, bad = _frames(rows)
            if bad is not None:
                rows, failed = rows[: bad[0]], _can_not_travel(base, at, *bad)
            if failed is None:
                yield lease, frames
                continue
            stop, used = self._whole(base, lease, len(rows))
            if used:
                yield attrs.evolve(lease, stop=stop), _frames(rows[:used])[0]
            raise failed

    def _whole(self, base: Stage, lease: Lease, rows: int) -> tuple[int, int]:
        """Up to where a lease can be made of so many rows of the base, and how many that takes."""
        used = 0
        for stop in range(lease.start, lease.stop):
            at = Addresses.span(lease.epoch, lease.start, stop + 1)
            needed = len(base_addresses(self.stage.meaning, base.meaning, at).position)
            if needed > rows:
                return stop, used
            used = needed
        return lease.stop, used

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
            frames, bad = _frames([x for _, x in rows])
            if bad is not None:
                at = Addresses.at(epoch, [position for position, _ in rows])
                failed = _can_not_travel(base, at, *bad)
                rows = rows[: bad[0] - bad[0] % ratio]
                frames, _ = _frames([x for _, x in rows])
            if rows:
                stop = start - (-len(rows) // ratio)
                positions = [position for position, _ in rows] if ratio == 1 else None
                if positions == list(range(start, stop)):
                    positions = None
                yield Lease(next(self.numbers), epoch, start, stop, positions), frames
                start = stop
            if failed is not None:
                raise failed


def _frames(rows: list[Any]) -> tuple[list[Frame], tuple[int, Exception] | None]:
    """The frames of rows; or the first of them that can not travel, and why."""
    try:
        return supply(rows), None
    except Exception:
        bad = first_unpackable(rows)
        if bad is None:
            raise
        return [], bad


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

"""Channels: where a run gets the rows of each part of its plan from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Protocol, Self, TypeAlias
from weakref import WeakSet

import attrs

from flowdsl.errors import ElementError, FlowError
from flowdsl.executor.costs import cost_of
from flowdsl.executor.execute import Tell
from flowdsl.nodes import Resumable, Row
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import Step, is_of_prefetch
from flowdsl.runtime.resume_points import OperatorProgress, Place
from flowdsl.statistics.run import OperatorCost, StageStatistics
from flowdsl.workers.pool import Pool
from flowdsl.workers.read_ahead import ReadAhead

_END = object()


class Runner(Protocol):
    """What runs a stage."""

    @property
    def by_position(self) -> bool:
        """Whether a pass can begin at any position, without the elements before it."""
        ...

    @property
    def place(self) -> int | None:
        """The position that comes next, if known and if a pass can begin at any position."""
        ...

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """The rows of one pass, from the position ``start`` on."""
        ...

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The elements of one pass, from a position on, without their positions."""
        ...

    def close(self) -> None:
        """Release everything it holds."""
        ...

    def statistics(self) -> StageStatistics:
        """The statistics of the stage so far."""
        ...


@attrs.define
class Spent:
    """The number of rows that came through a channel, and the time they took."""

    calls: int = 0
    seconds: float = 0.0

    def timed(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """The same rows; the time that each takes is added up."""
        clock = time.perf_counter
        while True:
            began = clock()
            try:
                row = next(rows, _END)
            finally:
                self.seconds += clock() - began
            if row is _END:
                return
            self.calls += 1
            yield row  # type: ignore[misc]  # it is a row, since it is not the end


ROWS_AHEAD = 64
"""The most rows that are read ahead where no workers are."""


@attrs.frozen(eq=False)
class StageChannel:
    """The rows of a stage, from where it runs."""

    stage: Stage
    runner: Runner
    standing: OperatorProgress = attrs.field(factory=OperatorProgress)
    clocked: Spent | None = None
    """The time spent on its rows; None unless the operator above it is timed."""

    @property
    def step(self) -> Step:
        """The last operator of the stage."""
        return self.stage.top

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """The rows of one pass, from the position at which the run begins or resumes."""
        start, _ = self.standing.begin()
        rows = self.runner.rows(epoch, start)
        return rows if self.clocked is None else self.clocked.timed(rows)

    def elements(self, epoch: int) -> Iterator[Any]:
        """The elements of one pass without their positions, which is cheaper than ``rows``."""
        start, _ = self.standing.begin()
        return self.runner.elements(epoch, start)


class Reading(chain[Row[Any]]):
    """The rows of an operator in one pass, closed as soon as they are no longer needed.

    An error that somebody keeps holds a traceback, which may hold the generator that a run was
    reading. The ``finally`` of a generator over a file or a socket must not wait for that. So a run
    closes its readings when it ends; before that, each closes when nothing refers to it any more.
    """

    # A subclass of chain, which iterates in C.

    __slots__ = ("__weakref__", "_failed", "_rows")
    _rows: Any
    _failed: Callable[[Exception], None]

    def __new__(cls, rows: Iterator[Row[Any]], failed: Callable[[Exception], None]) -> Self:
        """``failed`` is called with any exception that closing the rows raises."""
        rows = rows if hasattr(rows, "close") else _closable(rows)
        reading = super().__new__(cls, rows)
        reading._rows, reading._failed = rows, failed
        return reading

    def close(self) -> None:
        """Close the rows: no more of them come."""
        try:
            self._rows.close()
        except Exception as error:
            self._failed(error)

    def __del__(self) -> None:
        self.close()


def _closable(rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
    """The same rows from a generator, which can be closed."""
    yield from rows


@attrs.frozen(eq=False)
class HostedChannel:
    """The rows of an operator that is part of no stage, in the thread that reads it."""

    step: Step
    sources: tuple[Channel, ...]
    standing: OperatorProgress | None
    """Where the operator stands, if it can resume from there."""
    tell: Tell
    """Called with each element that the operator leaves out."""
    failures: list[FlowError]
    """Errors raised by closing generators, which the run has yet to report."""
    clocked: Spent | None = None
    """The time spent on its rows, that of the operators below included; None if not timed."""
    _open: WeakSet[Reading] = attrs.field(factory=WeakSet[Reading], init=False)

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """The rows of one pass, from the place at which the run begins or resumes."""
        if self.failures:  # below an endless ``repeat``, only the next pass can report them
            raise self.failures.pop(0)
        node, sources = self.step.node, [source.rows for source in self.sources]
        if self.standing is not None and isinstance(node, Resumable):
            given, over = self.standing.begin()
            rows = self._read(node.rows_after(epoch, given, over, sources))
            rows = self.standing.counted(rows)
        elif isinstance(node, SkipFailed):
            rows = self._read(node.rows_reporting(epoch, sources, partial(self.tell, self.step)))
        else:
            rows = self._read(node.rows(epoch, sources))
        return rows if self.clocked is None else self.clocked.timed(rows)

    def _read(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        reading = Reading(rows, partial(_failed, self.step, self.failures))
        self._open.add(reading)
        return reading

    def end(self) -> None:
        """Close all rows that it still has open."""
        for reading in list(self._open):
            reading.close()

    def cost(self) -> OperatorCost | None:
        """The operator's own cost, without the operators below it; None if it was not timed."""
        if self.clocked is None or not is_timed(self.step):
            return None
        below = sum(source.clocked.seconds for source in self.sources if source.clocked is not None)
        own = max(0.0, self.clocked.seconds - below)
        return cost_of(self.step, self.clocked.calls, own)


@attrs.define(eq=False)
class Below:
    """What one thread reads, and closes when it has done with it."""

    hosted: list[HostedChannel | AheadChannel] = attrs.field(factory=list[Any])
    """The channels of its operators outside of stages, each after its sources."""
    pools: list[Pool] = attrs.field(factory=list[Pool])
    """Its pools, each after those that it reads from."""
    failures: list[FlowError] = attrs.field(factory=list[FlowError])
    """Errors raised by closing generators, not reported yet."""

    def end(self) -> None:
        """Close all that is still open: first what reads, and then what it reads."""
        for pool in reversed(self.pools):
            pool.end_reading()
        for hosted in reversed(self.hosted):
            hosted.end()


@attrs.define(eq=False)
class AheadChannel:
    """The rows of a part that a thread reads ahead, where there is nothing for workers to do."""

    source: Channel
    below: Below
    memory: int
    clocked: Spent | None = None
    """The time spent waiting for its rows; None unless the operator above it is timed."""
    note: Callable[[], tuple[Place, ...]] | None = None
    """Tells where the operators of the thread stand, for states; None if they have no places."""
    shown: tuple[Place, ...] = ()
    """Where they stood after the last row that came from here."""
    _reader: ReadAhead[Any] | None = None

    @property
    def step(self) -> Step:
        """The last operator that the thread runs."""
        return self.source.step

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """The rows of one pass, from the place at which the run begins or resumes."""
        rows = self._rows(epoch)
        return rows if self.clocked is None else self.clocked.timed(rows)

    def _rows(self, epoch: int) -> Iterator[Row[Any]]:
        self.end()
        note = self.note
        if note is not None:
            self.shown = note()
        reader: ReadAhead[Any] = ReadAhead(
            self.step.node.title,
            lambda: self._noting(epoch),
            self.below.end,
            lambda: ROWS_AHEAD,
            self.memory,
        )
        self._reader = reader
        try:
            while rows := self._next(reader):
                rows.reverse()
                while rows:
                    yield self._given(*rows.pop())  # a name here would hold the element
            if note is not None:  # the thread has ended
                self.shown = note()
        finally:
            reader.stop()

    def _given(self, position: int, noted: tuple[Any, tuple[Place, ...]]) -> Row[Any]:
        x, self.shown = noted
        return position, x

    def _noting(self, epoch: int) -> Iterator[Row[Any]]:
        """The rows, each element with the places after it; in the thread."""
        note = self.note or tuple
        return ((position, (x, note())) for position, x in self.source.rows(epoch))

    def _next(self, reader: ReadAhead[Any]) -> list[Row[Any]]:
        while (rows := reader.take(ROWS_AHEAD)) is None:
            reader.wait()
        if not rows and reader.error is not None:
            raise reader.error
        return rows

    def end(self) -> None:
        """Read no more; what the thread reads is closed."""
        if self._reader is not None:
            self._reader.stop()

    def cost(self) -> None:
        """Nothing: its operators have costs of their own."""


Channel: TypeAlias = StageChannel | HostedChannel | AheadChannel


def is_timed(step: Step) -> bool:
    """Whether the operator's own cost is reported; an argument of ``prefetch`` has none."""
    return not is_of_prefetch(step.node)


def _failed(step: Step, failures: list[FlowError], error: Exception) -> None:
    told = f"{step.node.title} failed as it was closed: {error!r}"
    if isinstance(error, ElementError):  # it says all of that but when
        told = f"{error}; it was being closed"
    failure = FlowError(told)
    failure.__cause__ = error
    failures.append(failure)

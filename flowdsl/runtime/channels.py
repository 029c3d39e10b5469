"""Channels: the connections through which a run reads the rows of each part of its plan."""

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
from flowdsl.executor.execute import ReportSkip
from flowdsl.nodes import Acknowledging, AnyNode, PassFactory, Resumable, Row, Traceable
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import Step, is_of_prefetch
from flowdsl.runtime.delivery import Delivered, OutOfOrder, RowNotes, Tracking, tracking_of
from flowdsl.runtime.resume_points import OperatorProgress, Place
from flowdsl.statistics.stages import OperatorCost, StageStatistics
from flowdsl.workers.pool import Pool
from flowdsl.workers.read_ahead import ReadAhead

_END = object()


class Runner(Protocol):
    """Runs a stage: inline, or with a pool of workers."""

    @property
    def by_position(self) -> bool:
        """True if a pass can begin at any position, without producing the elements before it."""
        ...

    @property
    def place(self) -> int | None:
        """The next position to read; None if unknown or if passes only begin at position 0."""
        ...

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, beginning at position ``start``."""
        ...

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Iterate over the elements of one pass, without their positions."""
        ...

    def close(self) -> None:
        """Release all resources of the runner."""
        ...

    def statistics(self) -> StageStatistics:
        """The statistics of the stage so far."""
        ...


@attrs.define
class TimeSpent:
    """The number of rows read from a channel, and the total time spent reading them."""

    calls: int = 0
    seconds: float = 0.0

    def timed(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """Yield the same rows; add the time spent on each to ``seconds``."""
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
"""The maximum number of rows read ahead by a thread that feeds no workers."""


@attrs.frozen(eq=False)
class StageChannel:
    """The rows of a stage, read from its runner."""

    stage: Stage
    runner: Runner
    progress: OperatorProgress = attrs.field(factory=OperatorProgress)
    timer: TimeSpent | None = None
    """The time spent on its rows; None unless the operator above it is timed."""
    streams: tuple[tuple[Channel, RowNotes], ...] = ()
    """The channels of the stage's bases that are streams, with notes on their rows."""

    def delivered_by(self, source: AnyNode) -> Delivered | None:
        """Return what answers how many rows of ``source`` are delivered with the last row."""
        for channel, notes in self.streams:
            notes.delivered = channel.delivered_by(source)
            if notes.delivered is not None and isinstance(self.runner, Pool):
                pool = self.runner
                return lambda: notes.after(pool.rows_delivered)
        return None

    @property
    def step(self) -> Step:
        """The last operator of the stage."""
        return self.stage.top

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, from the position where the run begins or resumes."""
        start, _ = self.progress.begin()
        rows = self.runner.rows(epoch, start)
        return rows if self.timer is None else self.timer.timed(rows)

    def elements(self, epoch: int) -> Iterator[Any]:
        """Iterate over the elements without their positions, which is cheaper than ``rows``."""
        start, _ = self.progress.begin()
        return self.runner.elements(epoch, start)


class Reading(chain[Row[Any]]):
    """The rows of an operator in one pass, closed as soon as they are no longer needed.

    The problem: a generator over a file or a socket releases it in a ``finally`` clause, which runs
    when the generator is closed or collected. Relying on collection fails if user code keeps an
    exception: its traceback refers to the frame of the run, and so keeps the generator alive. The
    choice: a run closes its readings explicitly when it ends; before that, each reading closes its
    rows when nothing refers to the reading any more.
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
        """Close the rows; no further rows are produced."""
        try:
            self._rows.close()
        except Exception as error:
            self._failed(error)

    def __del__(self) -> None:
        self.close()


def _closable(rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
    """Wrap the rows in a generator, which can be closed."""
    yield from rows


@attrs.define(eq=False)
class HostedChannel:
    """The rows of an operator outside any stage, which runs in the thread that reads it."""

    step: Step
    sources: tuple[Channel, ...]
    progress: OperatorProgress | None
    """The progress of the operator; None if the operator cannot resume from a place."""
    report_skip: ReportSkip
    """Called with each element that the operator skips."""
    failures: list[FlowError]
    """Errors raised by closing generators, not reported yet."""
    timer: TimeSpent | None = None
    """The time spent on its rows, including time in the operators below; None if not timed."""
    _tracking: dict[int, Tracking] = attrs.field(factory=dict[int, Tracking], init=False)
    """What tracks the rows of a source through the operator, by the number of its own source."""
    _open: WeakSet[Reading] = attrs.field(factory=WeakSet[Reading], init=False)

    def delivered_by(self, source: AnyNode) -> Delivered | None:
        """Return what answers how many rows of ``source`` are delivered with the last row.

        None if the channel does not read this source; or if that is known at the end only.
        """
        node = self.step.node
        if node is source:
            assert isinstance(node, Acknowledging)
            receipts = node.receipts
            return lambda: receipts.yielded
        for k, channel in enumerate(self.sources):
            if (delivered := channel.delivered_by(source)) is None:
                continue
            if node.looks_back == 0:
                return delivered
            tracking = tracking_of(node, delivered)
            if tracking is not None:
                self._tracking[k] = tracking
            return tracking
        return None

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, from the place where the run begins or resumes."""
        if self.failures:  # below an endless ``repeat``, only the next pass can report them
            raise self.failures.pop(0)
        node = self.step.node
        sources: list[PassFactory] = [source.rows for source in self.sources]
        for k, tracking in self._tracking.items():
            sources[k] = tracking.reading(sources[k])
        in_place = [t for t in self._tracking.values() if isinstance(t, OutOfOrder)]
        if in_place and isinstance(node, Traceable):
            rows = in_place[0].leaving(self._read(node.rows_with_places(epoch, sources)))
        elif self.progress is not None and isinstance(node, Resumable):
            delivered, source_pass = self.progress.begin()
            rows = self._read(node.rows_after(epoch, delivered, source_pass, sources))
            rows = self.progress.counted(rows)
        elif isinstance(node, SkipFailed):
            report = partial(self.report_skip, self.step)
            rows = self._read(node.rows_reporting(epoch, sources, report))
        else:
            rows = self._read(node.rows(epoch, sources))
        return rows if self.timer is None else self.timer.timed(rows)

    def _read(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        reading = Reading(rows, partial(_failed, self.step, self.failures))
        self._open.add(reading)
        return reading

    def end(self) -> None:
        """Close all rows that are still open."""
        for reading in list(self._open):
            reading.close()

    def cost(self) -> OperatorCost | None:
        """Return the operator's own cost, excluding the operators below it; None if not timed."""
        if self.timer is None or not is_timed(self.step):
            return None
        below = sum(source.timer.seconds for source in self.sources if source.timer is not None)
        own = max(0.0, self.timer.seconds - below)
        return cost_of(self.step, self.timer.calls, own)


@attrs.define(eq=False)
class ThreadChannels:
    """The channels and pools that one thread reads, and closes at the end."""

    hosted: list[HostedChannel | AheadChannel] = attrs.field(factory=list[Any])
    """The channels of operators outside stages, each after its sources."""
    pools: list[Pool] = attrs.field(factory=list[Pool])
    """The pools, each after the pools it reads from."""
    failures: list[FlowError] = attrs.field(factory=list[FlowError])
    """Errors raised by closing generators, not reported yet."""

    def end(self) -> None:
        """Close everything that is still open, each reader before its sources."""
        for pool in reversed(self.pools):
            pool.end_reading()
        for hosted in reversed(self.hosted):
            hosted.end()


@attrs.define(eq=False)
class AheadChannel:
    """The rows of a part of the plan that a thread reads ahead, without workers."""

    source: Channel
    below: ThreadChannels
    memory: int
    timer: TimeSpent | None = None
    """The time spent waiting for its rows; None unless the operator above it is timed."""
    note: Callable[[], tuple[Place, ...]] | None = None
    """Returns the places of the thread's operators, for states; None if they have no places."""
    shown: tuple[Place, ...] = ()
    """The places of these operators after the last row that this channel yielded."""
    delivered: Delivered | None = None
    """Answers, in the thread, how many rows of a source are delivered; None if none needs it."""
    shown_delivered: int = 0
    """The answer with the last row that this channel yielded."""
    _reader: ReadAhead[Any] | None = None

    @property
    def step(self) -> Step:
        """The last operator that the thread runs."""
        return self.source.step

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, from the place where the run begins or resumes."""
        rows = self._rows(epoch)
        return rows if self.timer is None else self.timer.timed(rows)

    def _rows(self, epoch: int) -> Iterator[Row[Any]]:
        self.end()
        self.shown, self.shown_delivered = self._notes()
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
                    yield self._show(*rows.pop())  # a local variable would keep the element alive
            self.shown, self.shown_delivered = self._notes()  # the thread has ended
        finally:
            reader.stop()

    def delivered_by(self, source: AnyNode) -> Delivered | None:
        """Return what answers how many rows of ``source`` are delivered with the last row."""
        self.delivered = self.source.delivered_by(source)
        return None if self.delivered is None else lambda: self.shown_delivered

    def _show(self, position: int, noted: tuple[Any, tuple[Place, ...], int]) -> Row[Any]:
        x, self.shown, self.shown_delivered = noted
        return position, x

    def _noting(self, epoch: int) -> Iterator[Row[Any]]:
        """Yield the rows, each element with the notes after it; runs in the thread."""
        notes = self._notes
        return ((position, (x, *notes())) for position, x in self.source.rows(epoch))

    def _notes(self) -> tuple[tuple[Place, ...], int]:
        places = () if self.note is None else self.note()
        return places, 0 if self.delivered is None else self.delivered()

    def _next(self, reader: ReadAhead[Any]) -> list[Row[Any]]:
        while (rows := reader.take(ROWS_AHEAD)) is None:
            reader.wait()
        if not rows and reader.error is not None:
            raise reader.error
        return rows

    def end(self) -> None:
        """Stop reading; the thread closes its sources."""
        if self._reader is not None:
            self._reader.stop()

    def cost(self) -> None:
        """Return None: the operators that the thread runs report their own costs."""


Channel: TypeAlias = StageChannel | HostedChannel | AheadChannel


def is_timed(step: Step) -> bool:
    """Return True if the operator's own cost is reported; arguments of ``prefetch`` have none."""
    return not is_of_prefetch(step.node)


def _failed(step: Step, failures: list[FlowError], error: Exception) -> None:
    message = f"{step.node.title} failed as it was closed: {error!r}"
    if isinstance(error, ElementError):  # its message names the operator already
        message = f"{error}; it was being closed"
    failure = FlowError(message)
    failure.__cause__ = error
    failures.append(failure)

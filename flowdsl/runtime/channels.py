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
from flowdsl.nodes import Acknowledging, AnyNode, Padded, PassFactory, Resumable, Row, Traceable
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import Step, is_of_prefetch
from flowdsl.runtime.delivery import Delivered, LookingBack, OutOfOrder, RowNotes, WholePass
from flowdsl.runtime.resume_points import OperatorProgress, Place
from flowdsl.statistics.run import Occupancy
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

    def follow(self, source: AnyNode) -> Delivered | None:
        """Return what is delivered of ``source`` from now on; None if it is not read here."""
        pool = self.runner
        if not isinstance(pool, Pool):
            return None  # its bases are read by position
        for channel, notes in self.streams:
            if (below := channel.follow(source)) is not None:
                return notes.follow(below, lambda: pool.rows_delivered)
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


_Reader: TypeAlias = WholePass | LookingBack | OutOfOrder


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
    _reading: list[tuple[int, _Reader]] = attrs.field(factory=list[Any], init=False)
    """What follows the rows that the operator reads, with the number of the operator's source."""
    _in_place: OutOfOrder | None = attrs.field(default=None, init=False)
    """What follows the rows of an operator that yields them in another order."""
    _open: WeakSet[Reading] = attrs.field(factory=WeakSet[Reading], init=False)
    _occupied: int = attrs.field(default=0, init=False)
    _entries: int = attrs.field(default=0, init=False)

    def follow(self, source: AnyNode) -> Delivered | None:
        """Return what is delivered of ``source`` from now on; None if it is not read here."""
        node = self.step.node
        if node is source:
            assert isinstance(node, Acknowledging)
            receipts = node.receipts
            return Delivered(lambda: receipts.yielded)
        for k, channel in enumerate(self.sources):
            if (below := channel.follow(source)) is not None:
                count = self._followed(k, below.count)
                self._reading.append((k, end := WholePass()))
                return below.after(count, end)
        return None

    def _followed(self, k: int, count: Callable[[], int]) -> Callable[[], int]:
        """Return the operator's answer; ``count`` is the answer of its source ``k``."""
        node = self.step.node
        if node.looks_back == 0:
            return count
        if node.looks_back is not None:
            self._reading.append((k, looking_back := LookingBack(count, node.looks_back)))
            return looking_back
        if isinstance(node, Traceable) and node.yields_all:
            if self._in_place is None:
                self._in_place = OutOfOrder()
            if (k, self._in_place) not in self._reading:
                self._reading.append((k, self._in_place))
            return self._in_place.follow(count)
        return lambda: 0

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, from the place where the run begins or resumes."""
        if self.failures:  # below an endless ``repeat``, only the next pass can report them
            raise self.failures.pop(0)
        node = self.step.node
        sources: list[PassFactory] = [source.rows for source in self.sources]
        for k, reader in self._reading:
            sources[k] = reader.reading(sources[k])
        if self._in_place is not None and isinstance(node, Traceable):
            rows = self._in_place.leaving(self._read(node.rows_with_places(epoch, sources)))
        elif self.progress is not None and isinstance(node, Resumable):
            delivered, source_pass = self.progress.begin()
            rows = self._read(node.rows_after(epoch, delivered, source_pass, sources))
            rows = self.progress.counted(rows)
        elif isinstance(node, SkipFailed):
            report = partial(self.report_skip, self.step)
            rows = self._read(node.rows_reporting(epoch, sources, report))
        else:
            rows = self._read(node.rows(epoch, sources))
        if isinstance(node, Padded):
            rows = self._measured(node, rows)
        return rows if self.timer is None else self.timer.timed(rows)

    def _measured(self, node: Padded[Any, Any], rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        for row in rows:
            occupied, entries = node.occupied(row[1])
            self._occupied += occupied
            self._entries += entries
            yield row
            del row  # the consumer releases it first

    @property
    def occupancy(self) -> Occupancy | None:
        """How much of the operator's elements is not padding; None if it does not pad them."""
        if not isinstance(self.step.node, Padded):
            return None
        return Occupancy(self.step.node.title, self._occupied, self._entries, self.step.number)

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
    _end: WholePass = attrs.field(factory=WholePass, init=False)
    _counts: list[Callable[[], int]] = attrs.field(factory=list[Callable[[], int]], init=False)
    """The answers, in the thread, for each source that is followed."""
    _shown_counts: tuple[int, ...] = attrs.field(default=(), init=False)
    """The answers with the last row that this channel yielded."""
    _reader: ReadAhead[Any] | None = attrs.field(default=None, init=False)

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
        self.shown, self._shown_counts = self._notes()
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
            self.shown, self._shown_counts = self._notes()  # the thread has ended
        finally:
            reader.stop()

    def follow(self, source: AnyNode) -> Delivered | None:
        """Return what is delivered of ``source`` from now on; None if it is not read here."""
        if (below := self.source.follow(source)) is None:
            return None
        index = len(self._counts)
        self._counts.append(below.count)
        self._shown_counts += (0,)
        return below.after(lambda: self._shown_counts[index], self._end)

    def _show(
        self, position: int, noted: tuple[Any, tuple[Place, ...], tuple[int, ...]]
    ) -> Row[Any]:
        x, self.shown, self._shown_counts = noted
        return position, x

    def _noting(self, epoch: int) -> Iterator[Row[Any]]:
        """Yield the rows, each element with the notes after it; runs in the thread."""
        notes = self._notes
        rows = self._end.reading(self.source.rows)(epoch)
        return ((position, (x, *notes())) for position, x in rows)

    def _notes(self) -> tuple[tuple[Place, ...], tuple[int, ...]]:
        places = () if self.note is None else self.note()
        return places, tuple(count() for count in self._counts)

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

    @property
    def occupancy(self) -> None:
        """None: the operators that the thread runs report their own."""


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

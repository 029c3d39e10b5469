"""Channels: the connections through which a run reads the rows of each part of its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

import attrs

from flowdsl.elements.nbytes import nbytes_of
from flowdsl.errors import FlowError
from flowdsl.executor.costs import cost_of
from flowdsl.executor.execute import ReportSkip
from flowdsl.nodes import (
    Acknowledging,
    AnyNode,
    Identity,
    MadeFromLatest,
    Offsets,
    Padded,
    PassFactory,
    Restartable,
    Resumable,
    Retaining,
    Row,
    Traceable,
)
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import Step, is_of_prefetch
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.read_ahead import ReadAhead
from flowdsl.runtime.delivery import (
    Delivered,
    LookingBack,
    RowNotes,
    StillUsed,
    WholePass,
    releasing,
)
from flowdsl.runtime.filters import HostedFilter
from flowdsl.runtime.inline import Inline
from flowdsl.runtime.reading import Reading, TimeSpent, record_closing_error
from flowdsl.runtime.resume_points import (
    OperatorProgress,
    Place,
    PlacedOperators,
    Places,
    passes_on,
    places_after,
)
from flowdsl.statistics.run import Occupancy
from flowdsl.statistics.stages import OperatorCost, StageStatistics
from flowdsl.workers.pool import Pool

Placing: TypeAlias = Callable[[], Places]
"""Returns the places of operators after the last row that a channel yielded; empty if unknown."""


class Runner(Protocol):
    """Runs a stage: inline, or with a pool of workers."""

    stage: Stage

    @property
    def by_position(self) -> bool:
        """True if a pass can begin at any position, without producing the elements before it."""
        ...

    @property
    def next_position(self) -> int | None:
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


ROWS_AHEAD = 64
"""The maximum number of rows read ahead by a thread that feeds no workers."""


ROWS_PER_NOTE = 32
"""A thread notes the places of a ``Restartable`` operator after this many rows. The rows since the
last note are added to its place, as rows that a resume computes again."""


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
        one_to_one = self.stage.ordered and self.stage.rows_per_element == 1
        for channel, notes in self.streams:
            if (below := channel.follow(source)) is not None:
                return notes.delivered(below, lambda: pool.rows_delivered, one_to_one)
        return None

    def placing(self) -> Placing | None:
        """Return a function that returns the places of operators from here down; None if unknown.

        They end with the first operator that is read by position: the places below follow from it.
        """
        runner, progress = self.runner, self.progress
        if isinstance(runner, Inline):
            runner.counts_elements = True
        if runner.by_position:
            return lambda: progress.places_at(runner.next_position)
        channel, notes = self.streams[0]
        if self.operators_with_place is None or (below := channel.placing()) is None:
            return None
        assert isinstance(runner, Pool)
        noted = _noted_places(notes, channel, below, lambda: runner.rows_delivered)

        def places() -> Places:
            places_below = noted()
            return (*self._own_places(), *places_below) if places_below else ()

        return places

    @cached_property
    def operators_with_place(self) -> tuple[Resumable[Any, Any], ...] | None:
        """The operators of a stage over a stream that have a place; None if one cannot resume."""
        found, step = list[Resumable[Any, Any]](), self.stage.top
        while step is not self.stage.bases[0].top:
            if isinstance(step.node, Resumable):
                found.append(step.node)
            elif not passes_on(step.node):
                return None
            (step,) = step.sources
        return tuple(found)

    def _own_places(self) -> Iterator[Place]:
        """Yield the places of the operators in a stage over a stream, the last operator first.

        All follow from the number of elements that the stage has yielded.
        """
        place = self.progress.place(self.runner.next_position)
        for node in self.operators_with_place or ():
            yield place
            place = node.source_position(place[1])

    @property
    def rows_per_note(self) -> int:
        """The number of rows after which a thread that reads the channel notes its places."""
        return 1

    def begin_without_places(self, start: int) -> None:
        """Begin at a position in a pass from which no operator leaves elements out."""
        self.progress.begins_at = 0, start
        for _, notes in self.streams:
            notes.leave_out = start * self.stage.rows_per_element

    @property
    def step(self) -> Step:
        """The last operator of the stage."""
        return self.stage.top

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, from the position where the run begins or resumes."""
        rows = self.runner.rows(epoch, self._begin())
        return rows if self.timer is None else self.timer.timed(rows)

    def elements(self, epoch: int) -> Iterator[Any]:
        """Iterate over the elements without their positions, which is cheaper than ``rows``."""
        return self.runner.elements(epoch, self._begin())

    def _begin(self) -> int:
        for _, notes in self.streams:
            notes.begin()
        start, _ = self.progress.begin()
        return start


_Reader: TypeAlias = WholePass | LookingBack | StillUsed
"""Follows which rows of its source an operator is finished with."""


@attrs.define(eq=False)
class HostedChannel:
    """The rows of an operator outside any stage, which runs in the thread that reads it."""

    step: Step
    sources: tuple[Channel, ...]
    progress: OperatorProgress | None
    """The progress of the operator; None if the operator cannot resume from a place."""
    report_skip: ReportSkip
    """Called with each element that the operator skips."""
    closing_errors: list[FlowError]
    """Errors raised by closing generators, not reported yet."""
    timer: TimeSpent | None = None
    """The time spent on its rows, including time in the operators below; None if not timed."""
    filter: HostedFilter | None = None
    """Counts what the operator keeps; None if it is not a filter."""
    _readers: list[tuple[int, _Reader]] = attrs.field(factory=list[Any], init=False)
    """The number of a source of the operator, and what follows the rows read from it."""
    _still_used: dict[int, StillUsed] = attrs.field(factory=dict[int, StillUsed], init=False)
    """By the number of the source, what follows the rows that the operator may still use."""
    _open: WeakSet[Reading] = attrs.field(factory=WeakSet[Reading], init=False)
    """The rows of the operator that are not closed yet."""
    _occupied: int = attrs.field(default=0, init=False)
    """The entries of its elements that are not padding, if it pads them."""
    _entries: int = attrs.field(default=0, init=False)
    """All entries of its elements, if it pads them."""

    def follow(self, source: AnyNode) -> Delivered | None:
        """Return what is delivered of ``source`` from now on; None if it is not read here."""
        node = self.step.node
        if node is source:
            assert isinstance(node, Acknowledging)
            receipts = node.receipts
            return Delivered(
                used_up=lambda: receipts.yielded_of,
                latest=lambda: (receipts.yielded_before, receipts.yielded_of),
            )
        for k, channel in enumerate(self.sources):
            if (below := channel.follow(source)) is not None:
                used_up = self._followed(k, below)
                self._readers.append((k, end := WholePass()))
                return below.after(used_up, end, isinstance(node, MadeFromLatest | Identity))
        return None

    @any_depth
    def placing(self) -> Placing | None:
        """Return a function that returns the places of operators from here down; None if unknown.

        They end with the first operator that is read by position: the places below follow from it.
        """
        node, progress = self.step.node, self.progress
        if progress is None:
            return self.sources[0].placing() if passes_on(node) else None
        if node.indexable:
            return lambda: (progress.place(),)
        if (below := _placing_of_all(self.sources)) is None:
            return None
        if isinstance(node, Restartable):
            progress.places_below = below
            return progress.places

        def places() -> Places:
            places_below = below()
            return (progress.place(), *places_below) if places_below else ()

        return places

    @property
    def rows_per_note(self) -> int:
        """The number of rows after which a thread that reads the channel notes its places."""
        return ROWS_PER_NOTE if isinstance(self.step.node, Restartable) else 1

    def _followed(self, k: int, below: Delivered) -> Callable[[], Offsets]:
        """Return the operator's answer to ``follow``; ``below`` is the answer of source ``k``."""
        node = self.step.node
        if node.looks_back == 0:
            return below.used_up
        if node.looks_back is not None:
            self._readers.append((k, looking_back := LookingBack(below.used_up, node.looks_back)))
            return looking_back
        if isinstance(node, Retaining) or (isinstance(node, Traceable) and node.yields_all):
            if k not in self._still_used:
                reader = StillUsed(traces=not isinstance(node, Retaining))
                self._still_used[k] = reader
                self._readers.append((k, reader))
            return self._still_used[k].follow(below)
        return lambda: ()  # nothing is known to be delivered before the end of the pass

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, from the place where the run begins or resumes."""
        if self.closing_errors:  # below an endless ``repeat``, only the next pass can report them
            raise self.closing_errors.pop(0)
        node = self.step.node
        sources: list[PassFactory] = [source.rows for source in self.sources]
        for k, reader in self._readers:
            sources[k] = reader.reading(sources[k])
        if self.filter is not None:
            sources[0] = self.filter.seeing(sources[0])
        rows = self._node_rows(epoch, sources)
        for _, reader in self._readers:
            if isinstance(reader, LookingBack | StillUsed):
                rows = chain(rows, reader.forget_at_end())
        if self.filter is not None:
            rows = self.filter.keeping(rows)
        if isinstance(node, Padded):
            rows = self._measured(node, rows)
        return rows if self.timer is None else self.timer.timed(rows)

    def _node_rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        """Begin a pass over the operator, with what this run needs of it besides its elements."""
        node = self.step.node
        if self._still_used and isinstance(node, Retaining):
            retained = self._still_used[0].retained
            return self._closing(node.rows_retaining(epoch, sources, retained))
        if self._still_used and isinstance(node, Traceable):
            return releasing(self._closing(node.rows_with_places(epoch, sources)))
        if self.progress is not None and isinstance(node, Resumable):
            yielded, source_pass = self.progress.begin()
            rows = self._closing(node.rows_after(epoch, yielded, source_pass, sources))
            return self.progress.counted(rows)
        if self.progress is not None and isinstance(node, Restartable):
            restarts, again = self.progress.begin_again()
            rows = self._closing(node.rows_from(epoch, sources, restarts))
            rows = self.progress.counted(rows)
            return islice(rows, again, None) if again else rows
        if isinstance(node, SkipFailed):
            report = partial(self.report_skip, self.step)
            return self._closing(node.rows_reporting(epoch, sources, report))
        return self._closing(node.rows(epoch, sources))

    def _measured(self, node: Padded[Any, Any], rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """Yield the rows, and count the entries of their elements that are not padding."""
        for row in rows:
            occupied, entries = node.occupied(row[1])
            self._occupied += occupied
            self._entries += entries
            yield row
            del row  # else this frame would keep the row alive

    @property
    def occupancy(self) -> Occupancy | None:
        """The share of the operator's elements that is not padding; None if it does not pad."""
        if not isinstance(self.step.node, Padded):
            return None
        return Occupancy(self.step.node.title, self._occupied, self._entries, self.step.number)

    def _closing(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """Return the rows, which ``end`` closes if they are still open."""
        reading = Reading(rows, partial(record_closing_error, self.step, self.closing_errors))
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
    closing_errors: list[FlowError] = attrs.field(factory=list[FlowError])
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
    """The channels that the thread reads, ``source`` among them."""
    memory: int
    """The maximum bytes of the rows that are read ahead."""
    timer: TimeSpent | None = None
    """The time spent waiting for its rows; None unless the operator above it is timed."""
    _yielded: int = attrs.field(default=0, init=False)
    """The number of rows of the pass that this channel yielded; the thread may be further."""
    _notes: RowNotes = attrs.field(init=False)
    _reader: ReadAhead[Any] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._notes = RowNotes(self.source.rows)

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
        self._notes.begin()
        self._yielded = 0
        notes = self._notes
        reader: ReadAhead[Any] = ReadAhead(
            self.step.node.title,
            begin=lambda: notes.rows(epoch),
            close=self.below.end,
            max_rows=lambda: ROWS_AHEAD,
            size=nbytes_of,
            nbytes=self.memory,
        )
        self._reader = reader
        try:
            while rows := self._next(reader):
                rows.reverse()  # so that `pop` takes the oldest
                while rows:
                    self._yielded += 1
                    yield rows.pop()  # a local variable would keep the element alive
            self._notes.begin()  # the thread has ended, so its notes describe no later row
        finally:
            reader.stop()

    def follow(self, source: AnyNode) -> Delivered | None:
        """Return what is delivered of ``source`` from now on; None if it is not read here."""
        if (below := self.source.follow(source)) is None:
            return None
        return self._notes.delivered(below, lambda: self._yielded, one_to_one=True)

    def placing(self) -> Placing | None:
        """Return a function that returns the places after the last row that this channel yielded.

        The operators in the thread may be further. None if they have no places.
        """
        if (below := self.source.placing()) is None:
            return None
        return _noted_places(self._notes, self.source, below, lambda: self._yielded)

    @property
    def rows_per_note(self) -> int:
        """The number of rows after which a thread that reads the channel notes its places."""
        return 1

    def _next(self, reader: ReadAhead[Any]) -> list[Row[Any]]:
        """Wait for rows and return them; an empty list is the end of the pass."""
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

    filter = None
    """The operators that the thread runs count what they keep themselves."""


@any_depth
def placed_operators(channel: Channel) -> PlacedOperators | None:
    """Return the operators from a channel down to the parts that are read by position.

    None if a pass cannot begin at their places.
    """
    found = list[tuple[Sequence[AnyNode], OperatorProgress]]()
    below: tuple[PlacedOperators, ...] = ()
    """The operators in each flow that the last one found combines, if it combines several."""
    while True:
        if isinstance(channel, AheadChannel):
            channel = channel.source
        elif isinstance(channel, HostedChannel):
            node = channel.step.node
            if channel.progress is not None:
                found.append(([node], channel.progress))
            elif not passes_on(node):
                return None
            first, *others = channel.sources
            if others:
                parts = [placed_operators(source) for source in channel.sources]
                below = tuple(part for part in parts if part is not None)
                if node.indexable or len(below) < len(parts):
                    return None
                break
            channel = first
        elif channel.runner.by_position:
            found.append(([channel.step.node], channel.progress))
            break
        elif channel.operators_with_place is None:
            return None
        else:
            if channel.operators_with_place:
                found.append((channel.operators_with_place, channel.progress))
            channel = channel.streams[0][0]
    nodes, progress = found.pop()
    operators = PlacedOperators(nodes, progress, below)
    for nodes, progress in reversed(found):
        operators = PlacedOperators(nodes, progress, (operators,))
    return operators


def _placing_of_all(sources: Sequence[Channel]) -> Placing | None:
    """Return a function that returns the places of all sources; None if one is unknown."""
    answers = [answer for source in sources if (answer := source.placing()) is not None]
    if len(answers) < len(sources):
        return None
    if len(answers) == 1:
        return answers[0]

    def places() -> Places:
        each = [answer() for answer in answers]
        return tuple(chain.from_iterable(each)) if all(each) else ()

    return places


def _noted_places(
    notes: RowNotes, channel: Channel, below: Placing, rows_delivered: Callable[[], int]
) -> Placing:
    """Return a function that returns the places after the delivered rows of a thread.

    The thread reads ``channel``, and ``below`` returns the channel's current places. They are the
    result until the thread begins a pass, since older notes may be of a pass that was abandoned.
    """
    operators = placed_operators(channel)
    assert operators is not None  # as ``below`` is known
    first = operators.progress
    notes.every = channel.rows_per_note
    notes.is_resumed = lambda: first.begins_at is not None
    noted = notes.follow(below, rows_delivered)

    def places() -> Places:
        if not first.has_begun:
            return below()
        return places_after(*found) if (found := noted()) else ()

    return places


Channel: TypeAlias = StageChannel | HostedChannel | AheadChannel


def is_timed(step: Step) -> bool:
    """Return True if the operator's own cost is reported; arguments of ``prefetch`` have none."""
    return not is_of_prefetch(step.node)

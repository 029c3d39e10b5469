"""An execution: one pass over a flow, as its plan says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import compress, islice, pairwise, repeat
from operator import itemgetter, length_hint
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import attrs

from flowdsl.errors import FORKED, FlowError
from flowdsl.nodes import MOST_ELEMENTS, PassFactory, Resumable, Row
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.lower import held_above
from flowdsl.plan.plan import Ahead, Lookup, Part, Plan, Stage
from flowdsl.plan.tree import walk
from flowdsl.runtime.channels import (
    AheadChannel,
    Below,
    Channel,
    HostedChannel,
    Runner,
    Spent,
    StageChannel,
)
from flowdsl.runtime.inline import Inline
from flowdsl.runtime.resume_points import (
    BEGINNING,
    OperatorProgress,
    Place,
    ResumePoint,
    passes_on,
    resumable_path,
)
from flowdsl.runtime.skips import Skips
from flowdsl.statistics.run import RunStatistics, StageStatistics
from flowdsl.workers import worker_cache
from flowdsl.workers.pool import Pool
from flowdsl.workers.tasks import BYTES_IN_FLIGHT

T = TypeVar("T")
_element: Callable[[Row[Any]], Any] = itemgetter(1)


class Execution(Generic[T]):
    """One pass over a flow, from a position on: runs its stages and keeps their statistics."""

    def __init__(
        self, plan: Plan[T], epoch: int, start: int, mark: ResumePoint, profile: bool
    ) -> None:
        """Continue from ``mark``, and leave out the elements between it and ``start``.

        With ``profile`` every operator is timed.
        """
        self.plan = plan
        self.node = plan.node
        self.epoch = epoch
        self.start = start
        self.pools: list[Pool] = []
        self.ended = False
        """Whether the pass has reached its end."""
        self._profile = profile
        self._runners: dict[int, Runner] = {}
        """The runner of each stage, by the stage's number."""
        self._below = [Below()]
        """What the consumer's thread reads, and then what each thread does that reads ahead."""
        self._stages: tuple[StageStatistics, ...] | None = None
        self._to_come = repeat(True, MOST_ELEMENTS)
        self._mark = mark
        """Where the pass stood when a mark was last taken."""
        self._marks = [mark]
        """The marks that were kept, the oldest first; at the start, where the pass began."""
        self._told: Callable[[], tuple[Place, ...]] | None = None
        """Tells the places of the operators that have one, the last operator of the flow first."""
        self._skips = Skips()
        self._told_ahead = False
        """Whether elements left out below a pool may be reported ahead of their turn."""
        self._delivers = False
        """Whether the last stage's elements go to the consumer, with no operator between."""
        self._passed_over = start
        """The number of elements before ``start`` that are not made again."""
        self._cut_short = False
        """Whether an error ended the pass within an element, past which some operators stand."""
        self._forked = False
        self._began: float | None = None
        self._closed: float | None = None
        self._outside = 0.0

    @property
    def position(self) -> int:
        """The number of elements of the pass delivered so far, those before ``start`` included."""
        return self.start + MOST_ELEMENTS - length_hint(self._to_come)

    def elements(self) -> Generator[T]:
        """Iterate over the elements; works once."""
        try:
            # Taking a True for each element counts them at no cost.
            yield from compress(self._begin(), self._to_come)
        except GeneratorExit:  # abandoned: the workers end when this object is collected
            self._end_passes()
            raise
        except BaseException as error:
            self._cut_short = True
            self._end_passes(error)
            self.close()
            raise
        self.ended = True
        first = self._closed is None
        try:
            self._end_passes()
        finally:
            self.close()
        if first:
            self._check()
            self._skips.report()

    def _end_passes(self, because: BaseException | None = None) -> None:
        """Close the sources' generators, and with them their files and sockets.

        Raises:
            FlowError: One failed as it was closed; where there is an error already, its notes tell.
        """
        self._below[0].end()
        failures = [failure for below in self._below for failure in below.failures]
        if not failures:
            return
        for below in self._below:
            below.failures.clear()
        told = failures.pop(0) if because is None else because
        for failure in failures:
            told.add_note(f"and {failure}")
        if because is None:
            raise told

    def close(self) -> None:
        """End the pass and its workers; elements already delivered stay valid."""
        if self._closed is not None:
            return
        self._closed = time.perf_counter()
        self._stages = self._stages_now()
        for pool in self.pools:
            if self.ended:
                pool.end()
                worker_cache.leave(self.plan, pool.stage, pool.backend)
            else:
                pool.close()

    def statistics(self) -> RunStatistics:
        """The statistics so far: the counts of each stage, and where the time went."""
        now = self._closed or time.perf_counter()
        outside = self._outside
        if not self._profile:  # the last pool measures it anyway
            outside = self.pools[-1].outside if self.pools else 0.0
        return RunStatistics(
            elements=self.position - self.start,
            seconds=now - (self._began or now),
            consumer_seconds=outside,
            stages=self._stages or self._stages_now(),
            profiled=self._profile,
            hosted=tuple(
                cost
                for below in self._below
                for hosted in below.hosted
                if (cost := hosted.cost()) is not None
            ),
            skipped=self._skips.count,
            skips=tuple(self._skips.first),
            length=self.node.length,
        )

    def _stages_now(self) -> tuple[StageStatistics, ...]:
        stages = [runner.statistics() for _, runner in sorted(self._runners.items())]
        if self._delivers:  # the stage counts whole blocks; here each element taken is counted
            last, taken = stages[-1], self.position - self._passed_over
            more = taken - last.delivered
            stages[-1] = attrs.evolve(last, delivered=taken, in_flight=last.in_flight - more)
        return tuple(stages)

    def mark(self) -> None:
        """Note where the pass stands; only between two elements."""
        places = self._places()
        if places:
            self._mark = ResumePoint(self.position, places)

    def keep_mark(self, since: int) -> None:
        """Take a mark and keep it; of the marks up to ``since``, only the last is kept."""
        self.mark()
        if not self._marks or self._marks[-1] != self._mark:
            self._marks.append(self._mark)
        while len(self._marks) > 1 and self._marks[1].delivered <= since:
            del self._marks[0]

    def mark_at(self, position: int) -> ResumePoint:
        """The last mark that was taken at or before ``position``."""
        marks = sorted((*self._marks, self._mark), key=lambda mark: mark.delivered)
        return next((mark for mark in reversed(marks) if mark.delivered <= position), BEGINNING)

    def _places(self) -> tuple[Place, ...]:
        """The places of the operators that have one; empty if they are not known."""
        if self._told is None or self._cut_short:
            return ()
        return self._told()

    def fork(self) -> None:
        """Called in a fork of the process that began this pass and owns its workers."""
        self._forked = True

    def _begin(self) -> Iterator[T]:
        self._began = time.perf_counter()
        root = self._bind(self.plan.root, self._below[0])
        elements: Iterator[T]
        self._delivers = isinstance(root, StageChannel)
        if isinstance(root, StageChannel) and not root.stage.drops:
            elements = root.runner.elements(self.epoch, self.start)
        else:
            self._passed_over = self._go_on(root)
            elements = (
                root.elements(self.epoch)
                if isinstance(root, StageChannel)
                else map(_element, root.rows(self.epoch))
            )
            again = self.start - self._passed_over
            self._skips.muted = not self._told_ahead  # the resumed run has reported them already
            next(islice(elements, again, again), None)
            self._skips.muted = False
        if self.pools or len(self._below) > 1:
            _with_workers.add(self)
            elements = self._unless_forked(elements)
        return self._clocked(elements) if self._profile else elements

    def _go_on(self, root: Channel) -> int:
        """Set the operators to where the mark says; gives the elements delivered by then."""
        placed, passed = resumable_path(self.node), list(_way(root))
        standing = [
            (one, one.standing)
            for one in passed
            if not isinstance(one, AheadChannel) and one.standing is not None
        ]
        for (_, upper), (_, lower) in pairwise(standing):
            upper.below = lower
        if placed and standing:
            count, mark = len(placed), self._mark
        elif standing and self.node.indexable:  # the position alone tells where all stood
            count, mark = 1, ResumePoint(self.start, ((0, self.start),))
        else:
            return 0
        if placed:
            self._told = _places_of(passed, count)
        if not mark.places:
            return 0
        for (_, one), place in zip(standing, mark.places, strict=False):
            one.begins_at = place
        _, given = mark.places[-1]
        for (channel, _), (_, lower) in pairwise(standing[count - 1 :]):
            node = channel.step.node
            assert isinstance(node, Resumable)
            lower.begins_at = _, given = node.taken(given)
        return mark.delivered

    def _unless_forked(self, elements: Iterator[T]) -> Iterator[T]:
        """The elements; in a fork an error, even for those already here: both would get them."""
        for element in elements:
            if self._forked:
                raise FlowError(FORKED)
            yield element

    def _clocked(self, elements: Iterator[T]) -> Iterator[T]:
        for element in elements:
            began = time.perf_counter()
            yield element
            self._outside += time.perf_counter() - began

    def _bind(self, part: Part, below: Below) -> Channel:
        """The channel for the rows of a part of the plan, which one thread reads."""
        spent = Spent() if self._profile else None
        if isinstance(part, Stage):
            return StageChannel(part, self._runner(part, below), clocked=spent)
        channel: HostedChannel | AheadChannel
        if isinstance(part, Ahead):
            ahead, source = self._ahead(part.source)
            memory = part.workers.memory or BYTES_IN_FLIGHT
            channel = AheadChannel(source, ahead, memory, spent)
        else:
            sources = tuple(self._bind(source, below) for source in part.sources)
            standing = OperatorProgress() if isinstance(part.top.node, Resumable) else None
            how = sources, standing, self._skips.tell, below.failures, spent
            channel = HostedChannel(part.top, *how)
        below.hosted.append(channel)
        return channel

    def _ahead(self, part: Part) -> tuple[Below, Channel]:
        """What a thread will read, and its channel."""
        self._told_ahead |= any(isinstance(step.node, SkipFailed) for step in walk(part.top))
        self._below.append(below := Below())
        return below, self._bind(part, below)

    def _runner(self, stage: Stage, below: Below) -> Runner:
        if not stage.workers.count:
            inline = Inline(stage, self._skips.tell, self._profile)
            self._runners[stage.number] = inline
            return inline
        streams = [self._ahead(base) for base in stage.bases if not isinstance(base, Lookup)]
        ahead = (step for base in stage.bases for step in walk(base.top))
        self._told_ahead |= any(isinstance(step.node, SkipFailed) for step in ahead)
        backend = worker_cache.take(self.plan, stage, self._profile)
        passes: tuple[PassFactory, ...] = tuple(stream.rows for _, stream in streams)
        held = held_above(self.plan.root, stage)
        count = worker_cache.found(self.plan, stage)
        close = [ahead.end for ahead, _ in streams]  # there is one stream at most
        pool = Pool(stage, passes, backend, self._skips.tell, held, count, *close)
        below.pools.append(pool)
        self.pools.append(pool)
        self._runners[stage.number] = pool
        return pool

    def _check(self) -> None:
        """Check that the pass had as many elements as the flow's length says."""
        length = self.node.length
        if length is not None and self.position != length:
            raise FlowError(
                f"the pass ended after {self.position} of {length} elements of "
                f"{self.node.title}; this is a defect, please report it"
            )


def _way(root: Channel) -> Iterator[StageChannel | HostedChannel | AheadChannel]:
    """The channels from this one down that have a standing, and those that are read ahead.

    The last is a stage that can begin at any position; empty if the way leads to no such stage.
    """
    found, channel = list[Channel](), root
    while not isinstance(channel, StageChannel):
        if isinstance(channel, AheadChannel):
            found.append(channel)
            channel = channel.source
            continue
        if channel.standing is not None:
            found.append(channel)
        elif not passes_on(channel.step.node):
            return
        (channel,) = channel.sources
    if channel.runner.by_position:
        yield from found
        yield channel


def _places_of(passed: Sequence[Channel], count: int) -> Callable[[], tuple[Place, ...]]:
    """Tells where the first ``count`` of these channels that have a standing stand.

    Below a thread that reads ahead, it is where they stood after the last row that came from it.
    """
    first, *rest = passed
    if isinstance(first, AheadChannel):
        first.note = _places_of(rest, count)
        return lambda: first.shown
    standing, runner = first.standing, first.runner if isinstance(first, StageChannel) else None
    assert standing is not None
    if count > 1:
        below = _places_of(rest, count - 1)
        return lambda: (standing.place(), *places) if (places := below()) else ()
    if runner is None:
        return lambda: (standing.place(),)
    return lambda: () if (row := runner.place) is None else (standing.place(row),)


_with_workers: WeakSet[Execution[Any]] = WeakSet()
"""The executions of this process that have workers or threads, which a fork of it cannot use."""


def _forked() -> None:
    for execution in list(_with_workers):
        execution.fork()


if hasattr(os, "register_at_fork"):  # not every system can fork
    os.register_at_fork(after_in_child=_forked)

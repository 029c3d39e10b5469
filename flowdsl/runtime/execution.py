"""An execution: a pass over a flow by what its plan says, from its beginning to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from itertools import compress, islice, pairwise, repeat
from operator import itemgetter, length_hint
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import attrs

from flowdsl.arguments import MOST_ELEMENTS
from flowdsl.attempts import LeaveOut
from flowdsl.capabilities import Continuing
from flowdsl.errors import FlowError
from flowdsl.node import Passes, Row
from flowdsl.plan.lower import held_above
from flowdsl.plan.plan import Lookup, Part, Plan, Stage
from flowdsl.plan.tree import walk
from flowdsl.runtime.channels import Channel, HostedChannel, Runner, Spent, StageChannel
from flowdsl.runtime.inline import Inline
from flowdsl.runtime.places import BEGINNING, Mark, Place, Standing, passes_on, way
from flowdsl.runtime.skips import Skips
from flowdsl.statistics.run import RunStatistics, StageStatistics
from flowdsl.workers import warm
from flowdsl.workers.crew import FORKED
from flowdsl.workers.pool import Pool

T = TypeVar("T")
_element: Callable[[Row[Any]], Any] = itemgetter(1)


class Execution(Generic[T]):
    """One pass over a flow, from a position on: its stages, where they run, and their books."""

    def __init__(self, plan: Plan[T], epoch: int, start: int, mark: Mark, profile: bool) -> None:
        """It goes on from a mark, and leaves out what comes from there to ``start``.

        With ``profile`` every operator is timed.
        """
        self.plan = plan
        self.node = plan.node
        self.epoch = epoch
        self.start = start
        self.pools: list[Pool] = []
        self.ended = False
        """It has come to its end."""
        self._profile = profile
        self._runners: dict[int, Runner] = {}
        """Of each stage, by its number."""
        self._hosted: list[HostedChannel] = []
        """The operators of this process, each after what it reads."""
        self._failures: list[FlowError] = []
        """Of what failed as it was closed."""
        self._stages: tuple[StageStatistics, ...] | None = None
        self._to_come = repeat(True, MOST_ELEMENTS)
        self._mark = mark
        """Where it stood when it was asked last."""
        self._marks = [mark]
        """Where it began, and stood since, as far as that was to be kept."""
        self._standings: list[Standing] = []
        """Of the operators that have a place, the uppermost first, if all of them know it."""
        self._bottom: Runner | None = None
        """What runs the last of them, if it is no operator of this process."""
        self._skips = Skips()
        self._told_ahead = False
        """What a pool reads may tell of elements that are left out further on."""
        self._delivers = False
        """What the last stage makes is what the consumer gets."""
        self._passed_over = start
        """The elements before ``start`` that were not made again."""
        self._cut_short = False
        """It ended within an element, so that some operators stand beyond the last one."""
        self._forked = False
        self._began: float | None = None
        self._closed: float | None = None
        self._outside = 0.0

    @property
    def position(self) -> int:
        """How many elements of the pass have been delivered, those before ``start`` included."""
        return self.start + MOST_ELEMENTS - length_hint(self._to_come)

    def elements(self) -> Generator[T]:
        """The elements, once."""
        try:
            # Taking a True for each element counts them at no cost.
            yield from compress(self._begin(), self._to_come)
        except GeneratorExit:  # nobody goes on: the workers go when nobody holds this
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
        """Close what was opened to be read: the files and sockets of generators.

        Raises:
            FlowError: One failed as it was closed; where there is an error already, its notes tell.
        """
        for hosted in reversed(self._hosted):
            hosted.end()
        if not self._failures:
            return
        failures = self._failures.copy()
        self._failures.clear()
        told = failures.pop(0) if because is None else because
        for failure in failures:
            told.add_note(f"and {failure}")
        if because is None:
            raise told

    def close(self) -> None:
        """End the pass and its workers; elements that were delivered stay valid."""
        if self._closed is not None:
            return
        self._closed = time.perf_counter()
        self._stages = self._stages_now()
        for pool in self.pools:
            if self.ended:
                pool.end()
                warm.leave(self.plan, pool.stage, pool.crew)
            else:
                pool.close()

    def statistics(self) -> RunStatistics:
        """What has been done so far: the books of its stages, and where the time went."""
        now = self._closed or time.perf_counter()
        outside = self._outside
        if not self._profile:  # as the last stage has seen it, which costs nothing to know
            outside = self.pools[-1].outside if self.pools else 0.0
        return RunStatistics(
            elements=self.position - self.start,
            seconds=now - (self._began or now),
            consumer_seconds=outside,
            stages=self._stages or self._stages_now(),
            profiled=self._profile,
            hosted=tuple(filter(None, (hosted.cost() for hosted in self._hosted))),
            skipped=self._skips.count,
            skips=tuple(self._skips.first),
            length=self.node.length,
        )

    def _stages_now(self) -> tuple[StageStatistics, ...]:
        stages = [runner.statistics() for _, runner in sorted(self._runners.items())]
        if self._delivers:  # it counts what it has done with; here is known what was taken of that
            last, taken = stages[-1], self.position - self._passed_over
            more = taken - last.delivered
            stages[-1] = attrs.evolve(last, delivered=taken, in_flight=last.in_flight - more)
        return tuple(stages)

    def mark(self) -> None:
        """Take note of where the pass stands, between two elements."""
        places = self._places()
        if places:
            self._mark = Mark(self.position, places)

    def keep_mark(self, since: int) -> None:
        """Take note of it for later; of the marks from before ``since``, only the last is kept."""
        self.mark()
        if not self._marks or self._marks[-1] != self._mark:
            self._marks.append(self._mark)
        while len(self._marks) > 1 and self._marks[1].delivered <= since:
            del self._marks[0]

    def mark_at(self, position: int) -> Mark:
        """The last place that was noted, up to this position."""
        marks = sorted((*self._marks, self._mark), key=lambda mark: mark.delivered)
        return next((mark for mark in reversed(marks) if mark.delivered <= position), BEGINNING)

    def _places(self) -> tuple[Place, ...]:
        """Of the operators that have one; none where they are not known."""
        if not self._standings or self._cut_short:
            return ()
        *above, last = self._standings
        row = None
        if self._bottom is not None and (row := self._bottom.place) is None:
            return ()
        return (*(standing.place() for standing in above), last.place(row))

    def fork(self) -> None:
        """This process is a fork of the one that began it, whose workers these are."""
        self._forked = True

    def _begin(self) -> Iterator[T]:
        self._began = time.perf_counter()
        root = self._bind(self.plan.root)
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
            self._skips.muted = not self._told_ahead  # who is told was told when they came
            next(islice(elements, again, again), None)
            self._skips.muted = False
        if self.pools:
            _with_workers.add(self)
            elements = self._unless_forked(elements)
        return self._clocked(elements) if self._profile else elements

    def _go_on(self, root: Channel) -> int:
        """Have the operators begin where they stood; gives what was delivered by then."""
        placed, passed = way(self.node), list(_way(root))
        for (_, standing), (_, below) in pairwise(passed):
            standing.below = below
        if placed and passed:
            count, mark = len(placed), self._mark
        elif passed and self.node.indexable:  # where it is to begin tells where all stood
            count, mark = 1, Mark(self.start, ((0, self.start),))
        else:
            return 0
        self._standings = [standing for _, standing in passed[:count]] if placed else []
        last, _ = passed[count - 1]
        self._bottom = last.runner if isinstance(last, StageChannel) else None
        if not mark.places:
            return 0
        for (_, standing), place in zip(passed, mark.places, strict=False):
            standing.begins_at = place
        _, given = mark.places[-1]
        for (channel, _), (_, below) in pairwise(passed[count - 1 :]):
            node = channel.step.node
            assert isinstance(node, Continuing)
            below.begins_at = _, given = node.taken(given)
        return mark.delivered

    def _unless_forked(self, elements: Iterator[T]) -> Iterator[T]:
        """Not even what has come already: part of it would come to both processes."""
        for element in elements:
            if self._forked:
                raise FlowError(FORKED)
            yield element

    def _clocked(self, elements: Iterator[T]) -> Iterator[T]:
        for element in elements:
            began = time.perf_counter()
            yield element
            self._outside += time.perf_counter() - began

    def _bind(self, part: Part) -> Channel:
        """The channel that the rows of a part come through."""
        spent = Spent() if self._profile else None
        if isinstance(part, Stage):
            return StageChannel(part, self._runner(part), clocked=spent)
        sources = tuple(map(self._bind, part.sources))
        standing = Standing() if isinstance(part.top.node, Continuing) else None
        hosted = HostedChannel(part.top, sources, standing, self._skips.tell, self._failures, spent)
        self._hosted.append(hosted)
        return hosted

    def _runner(self, stage: Stage) -> Runner:
        if not stage.workers.count:
            inline = Inline(stage, self._skips.tell, self._profile)
            self._runners[stage.number] = inline
            return inline
        streams = [self._bind(base) for base in stage.bases if not isinstance(base, Lookup)]
        ahead = (step for base in stage.bases for step in walk(base.top))
        self._told_ahead |= any(isinstance(step.node, LeaveOut) for step in ahead)
        crew = warm.take(self.plan, stage, self._profile)
        passes: tuple[Passes, ...] = tuple(stream.rows for stream in streams)
        held = held_above(self.plan.root, stage)
        pool = Pool(stage, passes, crew, self._skips.tell, held)
        self.pools.append(pool)
        self._runners[stage.number] = pool
        return pool

    def _check(self) -> None:
        """Whether the pass had as many elements as it was to have."""
        length = self.node.length
        if length is not None and self.position != length:
            raise FlowError(
                f"the pass ended after {self.position} of {length} elements of "
                f"{self.node.title}; this is a defect, please report it"
            )


def _way(root: Channel) -> Iterator[tuple[Channel, Standing]]:
    """The operators of this process on the way down from this one, and where they stand.

    The last is a stage that begins at any position; there are none if the way does not lead to one.
    """
    found, channel = list[tuple[Channel, Standing]](), root
    while isinstance(channel, HostedChannel):
        if channel.standing is not None:
            found.append((channel, channel.standing))
        elif not passes_on(channel.step.node):
            return
        (channel,) = channel.sources
    if channel.runner.by_position:
        yield from found
        yield channel, channel.standing


_with_workers: WeakSet[Execution[Any]] = WeakSet()
"""Those of this process that a fork of it cannot go on with."""


def _forked() -> None:
    for execution in list(_with_workers):
        execution.fork()


if hasattr(os, "register_at_fork"):  # not everywhere are there forks
    os.register_at_fork(after_in_child=_forked)

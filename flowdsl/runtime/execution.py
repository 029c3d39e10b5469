"""An execution: a pass over a flow by what its plan says, from its beginning to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from itertools import compress, islice, pairwise, repeat
from operator import itemgetter, length_hint
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import attrs

from flowdsl.effects import Effect
from flowdsl.errors import FlowError
from flowdsl.kinds import Aside
from flowdsl.node import AnyNode, Node, Row, with_sources
from flowdsl.ops.attempting import LeaveOut, told
from flowdsl.plan.lower import Stage, StandIn, held_above, lower
from flowdsl.plan.optimize import optimize
from flowdsl.plan.tree import bases_of, walk
from flowdsl.runtime.hosted import Hosted
from flowdsl.runtime.inline import Inline
from flowdsl.runtime.places import BEGINNING, MOST_ELEMENTS, Mark, Place, Standing, passes_on, way
from flowdsl.runtime.skips import Skips
from flowdsl.statistics.run import RunStatistics, StageStatistics
from flowdsl.workers import warm
from flowdsl.workers.crew import FORKED
from flowdsl.workers.pool import Pool

T = TypeVar("T")
_element: Callable[[Row[Any]], Any] = itemgetter(1)


class Runner(Protocol):
    """What runs a stage."""

    @property
    def by_position(self) -> bool:
        """It begins at any position, without what comes before it."""
        ...

    @property
    def place(self) -> int | None:
        """The position that comes next, where that is known; by positions."""
        ...

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """One pass, from a position on."""
        ...

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The same without the positions."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

    def statistics(self) -> StageStatistics:
        """What has been done so far."""
        ...


@attrs.frozen(eq=False)
class Channel(StandIn):
    """A stage as the operators above it see it: its rows come from where it runs."""

    stage: Stage
    runner: Runner
    standing: Standing = attrs.field(factory=Standing)

    @property
    def meaning(self) -> AnyNode:
        return self.stage.meaning

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        start, _ = self.standing.begin()
        return self.runner.rows(epoch, start)

    def elements(self, epoch: int) -> Iterator[Any]:
        """The same without the positions."""
        start, _ = self.standing.begin()
        return self.runner.elements(epoch, start)


class Execution(Generic[T]):
    """One pass over a flow, from a position on: its stages, where they run, and their books."""

    def __init__(
        self, node: Node[T, Effect], epoch: int, start: int, mark: Mark, profile: bool
    ) -> None:
        """It goes on from a mark, and leaves out what comes from there to ``start``.

        With ``profile`` every operator is timed.
        """
        self.node = node
        self.epoch = epoch
        self.start = start
        self.pools: list[Pool] = []
        self.ended = False
        """It has come to its end."""
        self._profile = profile
        self._runners: list[Runner] = []
        self._hosts: list[Hosted] = []
        """The operators of this process, each after what it reads."""
        self._hosted: list[Hosted] = []
        """Those that are timed."""
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
        for host in reversed(self._hosts):
            host.end()
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
        for k, pool in enumerate(self.pools):
            if self.ended:
                pool.end()
                warm.leave(self.node, k, pool.crew)
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
            hosted=tuple(hosted.cost() for hosted in self._hosted),
            skipped=self._skips.count,
            skips=tuple(self._skips.first),
            length=self.node.length,
        )

    def _stages_now(self) -> tuple[StageStatistics, ...]:
        stages = [runner.statistics() for runner in self._runners]
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
        """The same, for later; of what is kept from before ``since``, only the last still is."""
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
        noting = told(self.node, self._skips.note)
        self._plan = lower(optimize(noting))
        root = self._bind(self._plan)
        elements: Iterator[T]
        self._delivers = isinstance(root, Channel)
        if isinstance(root, Channel) and not root.stage.drops:
            elements = root.runner.elements(self.epoch, self.start)
        else:
            self._passed_over = self._go_on(root)
            elements = (
                root.elements(self.epoch)
                if isinstance(root, Channel)
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

    def _go_on(self, root: AnyNode) -> int:
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
        self._bottom = last.runner if isinstance(last, Channel) else None
        if not mark.places:
            return 0
        for (_, standing), place in zip(passed, mark.places, strict=False):
            standing.begins_at = place
        _, given = mark.places[-1]
        for (node, _), (_, below) in pairwise(passed[count - 1 :]):
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

    def _bind(self, node: AnyNode) -> AnyNode:
        """Replace every stage by the channel its elements come through."""
        if not isinstance(node, Stage):
            node = with_sources(node, tuple(self._bind(source) for source in node.sources))
            return self._host(node)
        if not node.workers.count:
            inline = Inline(node, self._profile)
            self._runners.append(inline)
            return Channel(node, inline)
        bases = tuple(map(self._bind_base, node.bases))
        ahead = (part for base in bases_of(node.meaning) for part in walk(base))
        self._told_ahead |= any(isinstance(part, LeaveOut) for part in ahead)
        held = held_above(self._plan, node)
        crew = warm.take(self.node, len(self.pools), node, self._profile)
        pool = Pool(node, bases, crew, held)
        self.pools.append(pool)
        self._runners.append(pool)
        return Channel(node, pool)

    def _host(self, node: AnyNode) -> AnyNode:
        """Have an operator of this process tell where it stands, be timed, and be closed."""
        standing = Standing() if node.continues else None
        timed = self._profile and not isinstance(node, Aside)
        if timed:  # and what it takes its elements from
            below = (s if _is_timed(s) else self._clock(s) for s in node.sources)
            node = with_sources(node, tuple(below))
        hosted = Hosted(node, standing, timed, self._failures)
        self._hosts.append(hosted)
        if timed:
            self._hosted.append(hosted)
        return hosted

    def _clock(self, node: AnyNode) -> Hosted:
        return Hosted(node, None, True, self._failures)

    def _bind_base(self, base: AnyNode) -> AnyNode:
        """A base in memory is looked up as it is needed; any other is a stream."""
        return base if isinstance(base, Stage) and not base.workers.count else self._bind(base)

    def _check(self) -> None:
        """Whether the pass had as many elements as it was to have."""
        length = self.node.length
        if length is not None and self.position != length:
            raise FlowError(
                f"the pass ended after {self.position} of {length} elements of "
                f"{self.node.title}; this is a defect, please report it"
            )


def _is_timed(node: AnyNode) -> bool:
    return isinstance(node, Hosted) and node.clock


def _way(node: AnyNode) -> Iterator[tuple[AnyNode, Standing]]:
    """The operators of this process on the way down from this one, and where they stand.

    The last is a stage that begins at any position; there are none if the way does not lead to one.
    """
    found = list[tuple[AnyNode, Standing]]()
    while not isinstance(node, Channel):
        if isinstance(node, Hosted) and node.standing is not None:
            found.append((node.meaning, node.standing))
            (node,) = node.meaning.sources
        elif isinstance(node, Hosted) or passes_on(node):
            (node,) = node.sources
        else:
            return
    if node.runner.by_position:
        yield from found
        yield node, node.standing


_with_workers: WeakSet[Execution[Any]] = WeakSet()
"""Those of this process that a fork of it can not go on with."""


def _forked() -> None:
    for execution in list(_with_workers):
        execution.fork()


if hasattr(os, "register_at_fork"):  # not everywhere are there forks
    os.register_at_fork(after_in_child=_forked)

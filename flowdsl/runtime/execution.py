"""Execution: runs one pass over a flow, as planned.

The problem: a pass may begin in the middle, at the position of a saved state, and the operators
must then continue as if they had computed all elements before it. The naive way runs the pass from
its first element and drops what was delivered, which takes as long as the first run did. Positions
alone avoid this only where every operator can compute an element from its position.

The choice: before its first element, an execution sets the progress of each operator on the path
from the flow's end down to the part that is read by position (``_restore``). It takes the places
from the last resume point, or computes them from the position if that is enough. Only the elements
between the resume point and the requested position are computed again and dropped. Operators
without a place on this path make the pass begin at its first element.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import compress, islice, repeat
from operator import itemgetter, length_hint
from typing import Any, Generic, TypeVar
from weakref import WeakMethod, WeakSet

import attrs

from flowdsl.errors import FORKED, FlowError
from flowdsl.nodes import (
    POSITION_LIMIT,
    Acknowledging,
    AnyNode,
    MadeFromLatest,
    Node,
    PassFactory,
    Restartable,
    Resumable,
    Row,
)
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.lower import held_above
from flowdsl.plan.plan import AheadInThread, Lookup, Part, Plan, Stage
from flowdsl.plan.tree import walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.cancellation import is_cancelled
from flowdsl.runtime.channels import (
    AheadChannel,
    Channel,
    HostedChannel,
    Placing,
    Runner,
    StageChannel,
    ThreadChannels,
    placed_operators,
)
from flowdsl.runtime.delivery import Delivered, Follower, RowNotes
from flowdsl.runtime.filters import HostedFilter, filtered_in, is_filter, warn_if_sparse
from flowdsl.runtime.inline import Inline
from flowdsl.runtime.reading import TimeSpent
from flowdsl.runtime.resume_points import (
    BEGINNING,
    OperatorProgress,
    Places,
    ResumePoint,
    passes_on,
    resumable_path,
)
from flowdsl.runtime.skips import Skips
from flowdsl.statistics.run import Filtered, RunStatistics
from flowdsl.statistics.stages import StageStatistics
from flowdsl.workers import worker_cache
from flowdsl.workers.pool import Pool
from flowdsl.workers.tasks import BYTES_IN_FLIGHT

T = TypeVar("T")
_element: Callable[[Row[Any]], Any] = itemgetter(1)


class Execution(Generic[T]):
    """One pass over a flow from a position: runs its stages and collects their statistics."""

    def __init__(
        self,
        plan: Plan[T],
        epoch: int,
        start: int,
        resume_point: ResumePoint,
        profile: bool,
        when_ended: Callable[[], object],
    ) -> None:
        """Continue from ``resume_point``, and leave out the elements before ``start``.

        With ``profile`` every operator is timed. ``when_ended`` is called when the pass has ended
        with its last element.
        """
        self.plan = plan
        self.node = plan.node
        self.epoch = epoch
        self.start = start
        self.pools: list[Pool] = []
        self.ended = False
        """True if the pass has reached its end."""
        self.keep_workers = True
        """True to keep the workers for the next pass if this one is closed before its end."""
        self._profile = profile
        self._runners: dict[int, Runner] = {}
        """The runner of each stage, by the stage's number."""
        self._threads = [ThreadChannels()]
        """The channels of the consumer's thread, then of each thread that reads ahead."""
        self._stages: tuple[StageStatistics, ...] | None = None
        self._to_come = repeat(True, POSITION_LIMIT)
        """A True for each element that may follow: each element delivered takes one, in C."""
        self._last_point = resume_point
        """The last resume point that was recorded."""
        self._kept_points = [resume_point]
        """The resume points that are kept, the oldest first; the first is where the run began."""
        self._current_places: Placing | None = None
        """Returns the places of the operators that have one, the flow's last operator first."""
        self._followers: list[Follower] = []
        """The part that reports delivered rows to the sources that acknowledge them."""
        self.auto_commit = True
        """True if an element is delivered when the next one is requested."""
        self._when_ended = when_ended
        # Filters and pools, which this execution owns, must not keep it alive.
        warn_if_sparse = WeakMethod(self._warn_if_sparse)
        self._when_sparse = lambda: warn() if (warn := warn_if_sparse()) else None
        self._skips = Skips()
        self._skips_ahead = False
        """True if skips below a pool may be reported before earlier elements are delivered."""
        self._delivers = False
        """True if the last stage's elements go to the consumer, with no operator between."""
        self._passed_over = start
        """The number of elements before ``start`` that are not computed again."""
        self._cut_short = False
        """True if an error ended the pass within an element, so places are no longer consistent."""
        self._forked = False
        self._began: float | None = None
        """The time when the first element was requested."""
        self._closed: float | None = None
        """The time when the pass ended or was closed."""
        self._outside = 0.0
        """The seconds of the consumer's own work, if the run is profiled."""

    @property
    def position(self) -> int:
        """The number of elements of the pass delivered so far, including those before ``start``."""
        return self.start + POSITION_LIMIT - length_hint(self._to_come)

    def elements(self) -> Generator[T]:
        """Iterate over the elements; works once."""
        try:
            # compress takes a True for each element, which counts them at no cost.
            yield from compress(self._begin(), self._to_come)
        except GeneratorExit:  # the consumer has left the loop
            try:
                self._end_passes()
            finally:
                self.leave()
                self.close()
            raise
        except BaseException as error:
            self._cut_short = True
            self._end_passes(error)
            self.leave()
            self.close()
            if isinstance(error, RecursionError):  # one of a function would be an ElementError
                raise _nested_too_deeply(self.node) from error
            raise
        self.ended = True
        self._when_ended()
        was_closed = self._closed is not None
        try:
            self._end_passes()
        except BaseException:
            self.leave()  # the last rows are not acknowledged, as after any error
            raise
        finally:
            self.close()
        if self.auto_commit:
            self.commit(self.position)
            self.leave()
        if not was_closed:
            self._check()
            self._skips.log_total()
            self._warn_if_sparse()

    def _end_passes(self, because: BaseException | None = None) -> None:
        """Close the sources' generators, and with them their files and sockets.

        Raises:
            FlowError: A generator failed as it was closed. If an error has ended the pass,
                ``because``, the new one becomes a note of it instead.
        """
        self._threads[0].end()
        errors = [error for channels in self._threads for error in channels.closing_errors]
        if not errors:
            return
        for channels in self._threads:
            channels.closing_errors.clear()
        first = errors.pop(0) if because is None else because
        for error in errors:
            first.add_note(f"closing the run also failed: {error}")
        if because is None:
            raise first

    def close(self) -> None:
        """End the pass, and park or end its workers; elements already delivered stay valid."""
        if self._closed is not None:
            return
        self._closed = time.perf_counter()
        self._stages = self._stages_now()
        for runner in self._runners.values():
            if not isinstance(runner, Pool):
                runner.close()
        for pool in self.pools:
            # If the consumer has cancelled the pass, it ends with an error that is not the flow's.
            if self.ended or (self.keep_workers and (not self._cut_short or is_cancelled())):
                pool.end()
                worker_cache.put_back(self.plan, pool.stage, pool.backend)
            else:
                pool.close()

    def statistics(self) -> RunStatistics:
        """Return the statistics so far: the counts of each stage, and where the time was spent."""
        now = self._closed or time.perf_counter()
        outside = self._outside
        if not self._profile:  # then only pools measure it, and the last one gives to the consumer
            outside = self.pools[-1].outside if self.pools else 0.0
        stages = self._stages or self._stages_now()
        return RunStatistics(
            elements=self.position - self.start,
            seconds=now - (self._began or now),
            consumer_seconds=outside,
            stages=stages,
            filtered=tuple(self._filtered(stages)),
            profiled=self._profile,
            hosted=tuple(
                cost
                for channels in self._threads
                for hosted in channels.hosted
                if (cost := hosted.cost()) is not None
            ),
            occupancy=tuple(
                occupancy
                for channels in self._threads
                for hosted in channels.hosted
                if (occupancy := hosted.occupancy) is not None
            ),
            skipped=self._skips.count,
            skips=tuple(self._skips.first),
            length=self.node.length,
        )

    def _warn_if_sparse(self) -> None:
        if self.plan.drops:
            warn_if_sparse(self.plan, self.statistics())

    def _filtered(self, stages: Sequence[StageStatistics]) -> Iterator[Filtered]:
        """Yield what the filters of each stage keep, and each filter outside of stages."""
        for (_, runner), statistics in zip(sorted(self._runners.items()), stages, strict=True):
            if (found := filtered_in(runner.stage, statistics)) is not None:
                yield found
        for channels in self._threads:
            for hosted in channels.hosted:
                if hosted.filter is not None:
                    yield hosted.filter.filtered

    def _stages_now(self) -> tuple[StageStatistics, ...]:
        stages = [runner.statistics() for _, runner in sorted(self._runners.items())]
        if self._delivers:  # the stage counts whole blocks; here each delivered element is counted
            last, delivered = stages[-1], self.position - self._passed_over
            more = delivered - last.delivered
            stages[-1] = attrs.evolve(last, delivered=delivered, in_flight=last.in_flight - more)
        return tuple(stages)

    def record_resume_point(self) -> None:
        """Record a resume point; call this only between two elements."""
        places = self._places()
        if places:
            self._last_point = ResumePoint(self.position, places)

    def keep_resume_point(self, since: int) -> None:
        """Record and keep a resume point; of those up to ``since``, only the last is kept."""
        self.record_resume_point()
        if not self._kept_points or self._kept_points[-1] != self._last_point:
            self._kept_points.append(self._last_point)
        while len(self._kept_points) > 1 and self._kept_points[1].delivered <= since:
            del self._kept_points[0]

    def resume_point_at(self, position: int) -> ResumePoint:
        """Return the last resume point that was recorded at or before ``position``."""
        points = sorted((*self._kept_points, self._last_point), key=lambda point: point.delivered)
        return next((point for point in reversed(points) if point.delivered <= position), BEGINNING)

    def _places(self) -> Places:
        """Return the places of the operators that have one; empty if they are unknown."""
        if self._current_places is None or self._cut_short:
            return ()
        return self._current_places()

    def fork(self) -> None:
        """Note that this process is a fork of the one that began the pass and owns its workers."""
        self._forked = True

    def _begin(self) -> Iterator[T]:
        self._began = time.perf_counter()
        for stored in self.plan.storing:
            stored.store()
        root = self._bind(self.plan.root, self._threads[0])
        for source in self.plan.acknowledging:
            self._follow(root, source)
        self._delivers = isinstance(root, StageChannel)
        self._passed_over = self._restore(root)
        elements = (
            root.elements(self.epoch)
            if isinstance(root, StageChannel)
            else map(_element, root.rows(self.epoch))
        )
        if again := self.start - self._passed_over:
            self._skips.muted = not self._skips_ahead  # the earlier run has reported these skips
            next(islice(elements, again, again), None)  # drop this number of elements
            self._skips.muted = False
        if self._followers:
            elements = self._followed(elements)
        if self.pools or len(self._threads) > 1:
            _with_workers.add(self)
            elements = self._unless_forked(elements)
        return self._clocked(elements) if self._profile else elements

    def _restore(self, root: Channel) -> int:
        """Set the progress of the operators; return the number of elements delivered before that.

        The places of a resume point belong to the operators of ``resumable_path``, which depends on
        the flow alone. A plan may place a stage lower than the path ends: the operators below the
        path have no recorded place, but can compute theirs from the position of the operator above
        (``places_from``). In an indexable flow all operators do so, from ``start``.
        """
        if self.node.indexable and isinstance(root, StageChannel) and root.runner.by_position:
            root.begin_without_places(self.start)  # a short cut: what follows would do the same
            return self.start
        placed = resumable_path(self.node)
        operators = placed_operators(root) if placed or self.node.indexable else None
        resume_point = BEGINNING
        if placed and operators is not None:
            resume_point, self._current_places = self._last_point, root.placing()
        elif operators is not None and self.node.indexable:  # the position determines all places
            resume_point = ResumePoint(self.start, ((0, self.start),))
        if operators is None or not resume_point.places:
            if not isinstance(root, StageChannel) or root.stage.drops:
                return 0
            root.begin_without_places(self.start)
            return self.start
        operators.begin_at(resume_point.places)
        return resume_point.delivered

    def _follow(self, root: Channel, source: Acknowledging[Any, Any]) -> None:
        """Report to a source which of its rows are delivered, from now on."""
        source.receipts.followed = True
        delivered = root.follow(source) or Delivered(lambda: (), lambda: (None, ()))
        self._followers.append(follower := Follower(source.receipts, delivered))
        self.auto_commit &= source.auto_commit
        channel = root
        while isinstance(channel, HostedChannel) and passes_on(channel.step.node):
            (channel,) = channel.sources
        if isinstance(channel, StageChannel) and isinstance(channel.runner, Pool):
            channel.runner.when_left_out = follower.left_out
            return
        while isinstance(channel, HostedChannel) and _holds_nothing(channel.step.node):
            (channel,) = channel.sources
        if isinstance(channel, HostedChannel) and channel.step.node is source:
            source.receipts.when_left_out = follower.all_read

    def _followed(self, elements: Iterator[T]) -> Iterator[T]:
        """Yield the elements, and report to the sources which rows are delivered."""
        for position, element in enumerate(elements, self.start + 1):
            for follower in self._followers:
                follower.note(position)
            yield element
            if self.auto_commit:
                self.commit(position)

    def commit(self, position: int) -> None:
        """Acknowledge the rows from which the first ``position`` elements were made."""
        for follower in self._followers:
            if self.ended and position >= self.position:
                follower.commit_all()
            else:
                follower.commit(position)

    def leave(self) -> None:
        """End the connections to the sources; what is not committed is not acknowledged."""
        for follower in self._followers:
            follower.receipts.close()

    def _unless_forked(self, elements: Iterator[T]) -> Iterator[T]:
        """Yield the elements; raise in a fork, where each would be delivered a second time."""
        for element in elements:
            if self._forked:
                raise FlowError(FORKED)
            yield element

    def _clocked(self, elements: Iterator[T]) -> Iterator[T]:
        """Yield the elements, and time the consumer's work between them."""
        for element in elements:
            began = time.perf_counter()
            yield element
            self._outside += time.perf_counter() - began

    @any_depth
    def _bind(self, part: Part, thread: ThreadChannels) -> Channel:
        """Create the channel for the rows of a part of the plan, which one thread reads."""
        timer = TimeSpent() if self._profile else None
        if isinstance(part, Stage):
            runner, streams = self._runner(part, thread)
            return StageChannel(part, runner, timer=timer, streams=streams)
        channel: HostedChannel | AheadChannel
        if isinstance(part, AheadInThread):
            ahead, source = self._ahead(part.source)
            memory = part.workers.memory or BYTES_IN_FLIGHT
            channel = AheadChannel(source, ahead, memory, timer)
        else:
            sources = tuple(self._bind(source, thread) for source in part.sources)
            has_place = isinstance(part.top.node, Resumable | Restartable)
            progress = OperatorProgress() if has_place else None
            arguments = sources, progress, self._skips.report, thread.closing_errors, timer
            channel = HostedChannel(part.top, *arguments)
            if is_filter(part.top.node):
                channel.filter = HostedFilter(part.top, self._when_sparse)
        thread.hosted.append(channel)
        return channel

    def _ahead(self, part: Part) -> tuple[ThreadChannels, Channel]:
        """Create the channels of a thread that reads a part ahead."""
        self._skips_ahead |= any(isinstance(step.node, SkipFailed) for step in walk(part.top))
        self._threads.append(thread := ThreadChannels())
        return thread, self._bind(part, thread)

    def _runner(
        self, stage: Stage, thread: ThreadChannels
    ) -> tuple[Runner, tuple[tuple[Channel, RowNotes], ...]]:
        """Create the runner of a stage; also the channels of its streams, with notes on rows."""
        if not stage.workers.count:
            inline = Inline(stage, self._skips.report, self._profile, self._when_sparse)
            self._runners[stage.number] = inline
            return inline, ()
        streams = [self._ahead(base) for base in stage.bases if not isinstance(base, Lookup)]
        ahead = (step for base in stage.bases for step in walk(base.top))
        self._skips_ahead |= any(isinstance(step.node, SkipFailed) for step in ahead)
        backend = worker_cache.take(self.plan, stage, self._profile)
        noted = tuple((stream, RowNotes(stream.rows)) for _, stream in streams)
        passes: tuple[PassFactory, ...] = tuple(notes.rows for _, notes in noted)
        close = [ahead.end for ahead, _ in streams]  # there is one stream at most
        pool = Pool(
            stage,
            passes,
            backend,
            self._skips.report,
            held_above(self.plan.root, stage),
            worker_cache.tuned_workers(self.plan, stage),
            *close,
        )
        pool.when_sparse = self._when_sparse
        thread.pools.append(pool)
        self.pools.append(pool)
        self._runners[stage.number] = pool
        return pool, noted

    def _check(self) -> None:
        """Check that the number of elements of the pass equals the flow's length."""
        length = self.node.length
        if length is not None and self.position != length:
            raise FlowError(
                f"the pass ended after {self.position} of {length} elements of "
                f"{self.node.title}; this is a defect, please report it"
            )


_with_workers: WeakSet[Execution[Any]] = WeakSet()
"""The executions of this process that have workers or threads, which a fork of it cannot use."""


def _nested_too_deeply(node: Node[Any, Any]) -> FlowError:
    return FlowError(
        f"{node.title}: the flow is a chain of {node.depth} operators, and the iterators of those "
        f"that do not run as one loop are nested deeper than the {sys.getrecursionlimit()} calls "
        f"that Python allows; use one operator for several (one concat of all flows, one map of "
        f"all functions), or raise sys.setrecursionlimit"
    )


def _holds_nothing(node: AnyNode) -> bool:
    """Return True if an operator is finished with all its rows whenever it reads the next one."""
    return passes_on(node) or (isinstance(node, MadeFromLatest) and len(node.sources) == 1)


def _forked() -> None:
    for execution in list(_with_workers):
        execution.fork()


if hasattr(os, "register_at_fork"):  # not every system can fork
    os.register_at_fork(after_in_child=_forked)

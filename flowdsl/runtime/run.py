"""A run: one pass over a flow, under way."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar
from weakref import WeakSet

import attrs

from flowdsl.effects import Effect, Endless
from flowdsl.errors import ElementError, EndlessFlow, FlowError
from flowdsl.node import AnyNode, Aside, Node, Row, with_sources
from flowdsl.ops.attempting import told
from flowdsl.plan.lower import Stage, StandIn, held_above, lower
from flowdsl.plan.optimize import optimize
from flowdsl.runtime import warm
from flowdsl.runtime.crew import Crew
from flowdsl.runtime.hosted import Hosted
from flowdsl.runtime.inline import Inline
from flowdsl.runtime.pool import Pool
from flowdsl.runtime.processes import FORKED, Processes
from flowdsl.runtime.state import State, place_of, state_of
from flowdsl.runtime.statistics import RunStatistics, Skip, StageStatistics
from flowdsl.runtime.threads import Threads

T = TypeVar("T")
_MOST_SKIPS = 100
_element: Callable[[Row[Any]], Any] = itemgetter(1)
_log = logging.getLogger("flowdsl")


class Runner(Protocol):
    """What runs a stage."""

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

    @property
    def meaning(self) -> AnyNode:
        return self.stage.meaning

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        return self.runner.rows(epoch)


class Run(Iterator[T], Generic[T]):
    """An iterator over one pass of a flow, and a context manager that ends it.

    A run belongs to one thread at a time. Its workers start with the first ``next``, unless those
    of the last pass are still there; they end with an error, ``close``, or the flow itself.

    >>> import flowdsl as fl
    >>> with iter(fl.from_range(4).shuffle()) as run:
    ...     first, state = next(run), run.state_dict()
    >>> [first, *fl.from_range(4).shuffle().resume(state)] == fl.from_range(4).shuffle().collect()
    True
    """

    def __init__(
        self, node: Node[T, Effect], epoch: int = 0, position: int = 0, profile: bool = False
    ) -> None:
        """``position`` elements of the pass are left out, as already delivered.

        With ``profile`` every operator is timed, which costs a little.
        """
        self._node = node
        self._epoch = epoch
        self._start = self._position = position
        self._profile = profile
        self._pools: list[Pool] = []
        self._runners: list[Runner] = []
        self._hosted: list[Hosted] = []
        self._stages: tuple[StageStatistics, ...] | None = None
        self._elements: Iterator[T] | None = None
        self._ended = False
        self._skipped = _Skipped()
        self._began: float | None = None
        self._closed: float | None = None
        self._outside = 0.0

    @property
    def position(self) -> int:
        """How many elements of the pass have been delivered, those before a resume included."""
        return self._position

    def __next__(self) -> T:
        try:
            if self._elements is None:
                self._elements = self._begin()
            element = next(self._elements)
        except StopIteration:
            self._end()
            raise
        except BaseException:
            self.close()
            raise
        self._position += 1
        return element

    def __length_hint__(self) -> int:
        if Endless in self._node.effects:
            raise EndlessFlow(f"{endless_part(self._node)} never ends, so it can not be listed")
        return max(0, (self._node.length or 0) - self._position)

    def __enter__(self) -> Run[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the pass and its workers; elements that were delivered stay valid.

        After it, and after an error, ``next`` is a ``FlowError``: what was cut short does not look
        like the end.
        """
        self._elements = iter(()) if self._ended else _CutShort()
        if self._closed is not None:
            return
        self._closed = time.perf_counter()
        self._stages = tuple(runner.statistics() for runner in self._runners)
        for k, pool in enumerate(self._pools):
            if self._ended and isinstance(pool.crew, Processes):
                warm.leave(self._node, k, pool.crew)
            else:
                pool.close()

    def state_dict(self, position: int | None = None) -> State:
        """Where the pass stands, as plain JSON values: what ``flow.resume`` continues from.

        ``position`` asks for an earlier place, e.g. that of the last element a queue's consumer
        took, out of more that were fetched.

        Raises:
            ValueError: ``position`` is not between where the run began and where it is.
        """
        position = self._position if position is None else position
        if not self._start <= position <= self._position:
            raise ValueError(
                f"state_dict: position must be between {self._start} and {self._position}, "
                f"got {position}"
            )
        return state_of(self._node, self._epoch, position)

    def statistics(self) -> RunStatistics:
        """What the run has done so far: the books of its stages, and where the time went."""
        now = self._closed or time.perf_counter()
        outside = self._outside
        if not self._profile:  # as the last stage has seen it, which costs nothing to know
            outside = self._pools[-1].outside if self._pools else 0.0
        return RunStatistics(
            elements=self._position - self._start,
            seconds=now - (self._began or now),
            consumer_seconds=outside,
            stages=self._stages or tuple(runner.statistics() for runner in self._runners),
            profiled=self._profile,
            hosted=tuple(hosted.cost() for hosted in self._hosted),
            skipped=self._skipped.count,
            skips=tuple(self._skipped.first),
            length=self._node.length,
        )

    def _begin(self) -> Iterator[T]:
        self._began = time.perf_counter()
        noting = told(self._node, self._skipped.note)
        self._plan = lower(optimize(noting))
        root = self._bind(self._plan)
        if self._pools:
            _with_workers.add(self)
        elements: Iterator[T]
        if isinstance(root, Channel) and not root.stage.drops:
            elements = root.runner.elements(self._epoch, self._position)
        else:
            whole = (
                root.runner.elements(self._epoch)
                if isinstance(root, Channel)
                else map(_element, root.rows(self._epoch))
            )
            elements = islice(whole, self._position, None)
        return self._clocked(elements) if self._profile else elements

    def _clocked(self, elements: Iterator[T]) -> Iterator[T]:
        for element in elements:
            began = time.perf_counter()
            yield element
            self._outside += time.perf_counter() - began

    def _bind(self, node: AnyNode) -> AnyNode:
        """Replace every stage by the channel its elements come through."""
        if not isinstance(node, Stage):
            node = with_sources(node, tuple(self._bind(source) for source in node.sources))
            return self._host(node) if self._profile and not isinstance(node, Aside) else node
        if not node.workers.count:
            inline = Inline(node, self._profile)
            self._runners.append(inline)
            return Channel(node, inline)
        bases = tuple(map(self._bind_base, node.bases))
        held = held_above(self._plan, node)
        crew: Crew
        if node.workers.threads:
            crew = Threads(node, self._profile)
        else:
            crew = warm.take(self._node, len(self._pools), node, self._profile)
        pool = Pool(node, bases, crew, held)
        self._pools.append(pool)
        self._runners.append(pool)
        return Channel(node, pool)

    def _host(self, node: AnyNode) -> AnyNode:
        """Have an operator of this process timed, and what it takes its elements from."""
        below = [s if isinstance(s, Hosted) else Hosted(s) for s in node.sources]
        hosted = Hosted(with_sources(node, tuple(below)))
        self._hosted.append(hosted)
        return hosted

    def _bind_base(self, base: AnyNode) -> AnyNode:
        """A base in memory is looked up as it is needed; any other is a stream."""
        return base if isinstance(base, Stage) and not base.workers.count else self._bind(base)

    def _end(self) -> None:
        """The pass has come to its end."""
        self._ended = True
        first = self._closed is None
        self.close()
        if first:
            self._check()
            self._skipped.report()

    def _check(self) -> None:
        """Whether the pass had as many elements as it was to have."""
        length = self._node.length
        if length is not None and self._position != length:
            raise FlowError(
                f"the pass ended after {self._position} of {length} elements of "
                f"{self._node.title}; this is a defect, please report it"
            )


@attrs.define
class _Skipped:
    """The elements of a run that were left out."""

    count: int = 0
    first: list[Skip] = attrs.field(factory=list[Skip])

    def note(self, error: ElementError) -> None:
        self.count += 1
        if len(self.first) < _MOST_SKIPS:
            self.first.append(Skip(f"{error}: {error.__cause__!r}"))

    def report(self) -> None:
        if self.count:
            _log.warning(
                "left out since they failed: %d elements, the first: %s",
                self.count,
                self.first[0].error,
            )


_with_workers: WeakSet[Run[Any]] = WeakSet()
"""The runs of this process that a fork of it can not go on with."""


def _forked() -> None:
    for run in list(_with_workers):
        run._elements = _Forked()


if hasattr(os, "register_at_fork"):  # not everywhere are there forks
    os.register_at_fork(after_in_child=_forked)


class _Forked(Iterator[NoReturn]):
    """What is left of a run in a fork of its process, though some of it may have come here."""

    def __next__(self) -> NoReturn:
        raise FlowError(FORKED)


class _CutShort(Iterator[NoReturn]):
    """What is left of a pass that did not come to its end."""

    def __next__(self) -> NoReturn:
        raise FlowError("this run was closed, or ended with an error, before the end of its pass")


def endless_part(node: AnyNode) -> str:
    """The operator that makes a flow endless."""
    for source in node.sources:
        if Endless in source.effects:
            return endless_part(source)
    return node.title


def resume(node: Node[T, Effect], state: Mapping[str, object]) -> Run[T]:
    """Continue from a state.

    Raises:
        StateMismatch: The state is of another flow, or is no state.
    """
    return Run(node, *place_of(node, state))

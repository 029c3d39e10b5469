"""Filters that keep almost nothing: a run says so, once.

A wrong condition, such as one that compares text with a number, looks like a slow flow: everything
is read, and nothing comes. Nothing is counted for this but what the statistics count anyway, in
blocks and tasks; a filter outside of stages is counted by iterators in C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, compress, repeat
from operator import length_hint
from typing import Any
from weakref import WeakSet

import attrs

from flowdsl.nodes import POSITION_LIMIT, AnyNode, Elementwise, PassFactory, Row
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.plan import Plan, Stage
from flowdsl.plan.tree import Step
from flowdsl.resources.streams import logger
from flowdsl.statistics.run import DROPPED_IN_A_ROW, Filtered, RunStatistics
from flowdsl.statistics.stages import StageStatistics

_log = logger()

_said: WeakSet[Plan[Any]] = WeakSet()


def is_filter(node: AnyNode) -> bool:
    """Return True if an operator leaves elements out that did not fail."""
    return isinstance(node, Elementwise) and node.drops and not isinstance(node, SkipFailed)


def filtered_in(stage: Stage, statistics: StageStatistics) -> Filtered | None:
    """Return how many elements the filters of a stage keep; None if it has no filter."""
    filters = [step for step in stage.steps if is_filter(step.node)]
    if not filters:
        return None
    title = " and ".join(step.node.title for step in filters)
    seen = statistics.delivered + statistics.filtered
    return Filtered(title, statistics.delivered, seen, filters[-1].number)


def warn_if_sparse(plan: Plan[Any], statistics: RunStatistics) -> None:
    """Log the filters of a plan that keep almost nothing, unless this was logged before."""
    if statistics.sparse and plan not in _said:
        _said.add(plan)
        _log.warning("%s", statistics.advice_on_filters)


@attrs.define(eq=False)
class HostedFilter:
    """Counts what a filter outside of stages sees and keeps."""

    step: Step
    when_sparse: Callable[[], object]
    """Called if none of the first elements was kept."""
    _counters: list[tuple[int, Iterator[bool], bool]] = attrs.field(factory=list[Any])

    def seeing(self, source: PassFactory) -> PassFactory:
        """Count the elements of the passes of the filter's source."""
        first, rest = self._counter(DROPPED_IN_A_ROW, True), self._counter(POSITION_LIMIT, True)
        to_come = chain(first, self._alarm(), rest)
        return lambda epoch: compress(source(epoch), to_come)

    def keeping(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """Count the elements that the filter yields."""
        return compress(rows, self._counter(POSITION_LIMIT, False))

    def _counter(self, limit: int, seen: bool) -> Iterator[bool]:
        counter = repeat(True, limit)
        self._counters.append((limit, counter, seen))
        return counter

    def _alarm(self) -> Iterator[bool]:
        if not self._count(seen=False):
            self.when_sparse()
        yield from ()

    def _count(self, seen: bool) -> int:
        return sum(n - length_hint(counter) for n, counter, of in self._counters if of is seen)

    @property
    def filtered(self) -> Filtered:
        """The counts of all passes of the run so far."""
        title, number = self.step.node.title, self.step.number
        return Filtered(title, self._count(seen=False), self._count(seen=True), number)

"""Filters that keep almost nothing: a run says so, once.

A wrong condition, such as one that compares text with a number, looks like a slow flow: everything
is read, and nothing comes. In stages, this is seen from the counts that statistics have anyway, by
blocks and tasks. A filter outside of stages is counted by iterators in C.
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
from flowdsl.resources.logs import logger
from flowdsl.statistics.run import DROPPED_IN_A_ROW, Filtered, RunStatistics
from flowdsl.statistics.stages import StageStatistics

_log = logger()

_warned: WeakSet[Plan[Any]] = WeakSet()
"""The plans whose filters were logged."""


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
    return Filtered(title, kept=statistics.delivered, seen=seen, step=filters[-1].number)


def warn_if_sparse(plan: Plan[Any], statistics: RunStatistics) -> None:
    """Log the filters of a plan that keep almost nothing, unless this was logged before."""
    if statistics.sparse and plan not in _warned:
        _warned.add(plan)
        _log.warning("%s", statistics.advice_on_filters)


@attrs.frozen(eq=False)
class _Counter:
    """Counts elements in C: a ``compress`` takes one True for each element."""

    limit: int
    to_come: Iterator[bool]

    @classmethod
    def of(cls, limit: int) -> _Counter:
        """Create a counter up to ``limit``."""
        return cls(limit, repeat(True, limit))

    @property
    def count(self) -> int:
        return self.limit - length_hint(self.to_come)


@attrs.define(eq=False)
class HostedFilter:
    """Counts what a filter outside of stages sees and keeps."""

    step: Step
    when_sparse: Callable[[], object]
    """Called if none of the first elements was kept."""
    _seen: list[_Counter] = attrs.field(factory=list[_Counter])
    _kept: list[_Counter] = attrs.field(factory=list[_Counter])

    def seeing(self, source: PassFactory) -> PassFactory:
        """Count the elements of the passes of the filter's source."""
        first, rest = _Counter.of(DROPPED_IN_A_ROW), _Counter.of(POSITION_LIMIT)
        self._seen += [first, rest]
        to_come = chain(first.to_come, self._alarm(), rest.to_come)
        return lambda epoch: compress(source(epoch), to_come)

    def keeping(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """Count the elements that the filter yields."""
        self._kept.append(kept := _Counter.of(POSITION_LIMIT))
        return compress(rows, kept.to_come)

    def _alarm(self) -> Iterator[bool]:
        """Yield nothing; reached between the first elements and the rest."""
        if not sum(counter.count for counter in self._kept):
            self.when_sparse()
        yield from ()

    @property
    def filtered(self) -> Filtered:
        """The counts of all passes of the run so far."""
        return Filtered(
            self.step.node.title,
            kept=sum(counter.count for counter in self._kept),
            seen=sum(counter.count for counter in self._seen),
            step=self.step.number,
        )

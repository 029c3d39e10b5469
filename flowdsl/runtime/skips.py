"""Skipped elements: elements that a run leaves out because they failed."""

from __future__ import annotations

import threading

import attrs

from flowdsl.effects import Endless
from flowdsl.errors import ElementError, EndlessFlow
from flowdsl.nodes import AnyNode, Failed
from flowdsl.nodes.failures import Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.tree import Step, walk
from flowdsl.resources.logs import logger
from flowdsl.statistics.run import MAX_SKIPS, Skip

_log = logger()


@attrs.define
class Skips:
    """Counts skipped elements, keeps the first, and detects passes that skip every element."""

    count: int = 0
    first: list[Skip] = attrs.field(factory=list[Skip])
    muted: bool = False
    """True while a resumed run repeats elements, whose skips the earlier run has reported."""
    _lock: threading.RLock = attrs.field(factory=threading.RLock, repr=False)
    """Threads that read ahead report skips, too; handlers are called one at a time."""
    _passes: dict[int, _Pass] = attrs.field(factory=dict[int, "_Pass"])
    """The count for each operator that skips elements, by the identity of its step."""

    def report(self, step: Step, failed: Failed) -> None:
        """Count an element that a ``SkipFailed`` step skips, and call the step's handler.

        Raises:
            EndlessFlow: All elements of a pass were skipped in a flow that is repeated forever.
        """
        with self._lock:
            self._report(step, failed)

    def _report(self, step: Step, failed: Failed) -> None:
        if self.muted:
            return
        node = step.node
        assert isinstance(node, SkipFailed)
        error = node.error(failed)
        if Endless in node.effects:
            if id(step) not in self._passes:
                self._passes[id(step)] = _Pass(_repeated(node))
            self._passes[id(step)].note(error)
        self.count += 1
        if len(self.first) < MAX_SKIPS:
            self.first.append(Skip(str(error), _step_number(step, failed)))
        node.handle(error)

    def log_total(self) -> None:
        """Log the number of skipped elements at the end of the pass."""
        if self.count == 1:
            _log.warning("1 element failed and was left out: %s", self.first[0].error)
        elif self.count:
            first = self.first[0].error
            _log.warning("%d elements failed and were left out, the first: %s", self.count, first)


def _step_number(skipping: Step, failed: Failed) -> int:
    """Return the number of the failed operator in ``flow.explain()``."""
    for step in walk(skipping):
        if isinstance(step.node, Attempt | AttemptToRead) and step.node.number == failed.attempt:
            return step.number
    return skipping.sources[0].number


@attrs.define
class _Pass:
    """Counts the skipped elements of one pass over a flow that is repeated forever."""

    length: int
    """The number of elements of a pass; 0 if unknown."""
    number: int = -1
    """The number of the last pass with a skipped element."""
    count: int = 0
    """The number of elements of that pass that were skipped."""

    def note(self, error: ElementError) -> None:
        """Count a skipped element; raise if all elements of its pass were skipped."""
        if not self.length:
            return
        # Below the ``repeat`` each pass has its own epoch; above it positions keep counting.
        number = error.epoch + error.position // self.length
        self.count = self.count + 1 if number == self.number else 1
        self.number = number
        if self.count == self.length:
            raise EndlessFlow(
                f"repeat: all {self.length} elements of a pass failed and were left out, and "
                f"continuing might never yield an element; the last: {error}"
            )


def _repeated(node: AnyNode) -> int:
    """Return the length of one pass over the flow that is repeated forever; 0 if unknown."""
    repeated = (
        source
        for part in walk(node)
        for source in part.sources
        if Endless in part.effects - source.effects
    )
    return max((source.length or 0 for source in repeated), default=0)

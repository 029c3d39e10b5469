"""The elements that a run left out because they failed."""

from __future__ import annotations

import logging
import threading

import attrs

from flowdsl.effects import Endless
from flowdsl.errors import ElementError, EndlessFlow
from flowdsl.nodes import AnyNode, Failed
from flowdsl.nodes.failures import Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.tree import Step, walk
from flowdsl.statistics.run import MOST_SKIPS, Skip

_log = logging.getLogger("flowdsl")


@attrs.define
class Skips:
    """Counts the elements left out, keeps the first, and detects passes that leave out all."""

    count: int = 0
    first: list[Skip] = attrs.field(factory=list[Skip])
    muted: bool = False
    """True while a resumed run makes elements again: the run before has reported those already."""
    _lock: threading.RLock = attrs.field(factory=threading.RLock, repr=False)
    """Threads that read ahead tell of elements, too; handlers are called one at a time."""
    _passes: dict[int, _Pass] = attrs.field(factory=dict[int, "_Pass"])
    """The count for each operator that leaves elements out, by the identity of its step."""

    def tell(self, step: Step, failed: Failed) -> None:
        """Note an element that a ``SkipFailed`` step leaves out, and call the step's handler.

        Raises:
            EndlessFlow: A whole pass was left out of what is repeated for ever.
        """
        with self._lock:
            self._tell(step, failed)

    def _tell(self, step: Step, failed: Failed) -> None:
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
        if len(self.first) < MOST_SKIPS:
            self.first.append(Skip(str(error), _number(step, failed)))
        if node.handler is not None:
            node.handler(error)

    def report(self) -> None:
        """Log, at the end of the pass, how many elements were left out of it."""
        if self.count:
            _log.warning(
                "%d elements failed and were left out, the first: %s",
                self.count,
                self.first[0].error,
            )


def _number(leaving: Step, failed: Failed) -> int:
    """The number of the failed operator in ``flow.explain()``."""
    for step in walk(leaving):
        if isinstance(step.node, Attempt | AttemptToRead) and step.node.number == failed.step:
            return step.number
    return leaving.sources[0].number


@attrs.define
class _Pass:
    """Counts the elements left out of one pass over a flow that is repeated for ever."""

    length: int
    number: int = -1
    count: int = 0

    def note(self, error: ElementError) -> None:
        if not self.length:
            return
        # Below the ``repeat`` each pass has its own epoch; above it positions go on counting.
        number = error.epoch + error.position // self.length
        self.count = self.count + 1 if number == self.number else 1
        self.number = number
        if self.count == self.length:
            raise EndlessFlow(
                f"repeat: all {self.length} elements of a pass failed and were left out, and going "
                f"on might never give one; the last: {error}"
            )


def _repeated(node: AnyNode) -> int:
    """The length of one pass over the flow that is repeated for ever; 0 if not known."""
    ends = (s for p in walk(node) for s in p.sources if Endless in p.effects - s.effects)
    return max((source.length or 0 for source in ends), default=0)

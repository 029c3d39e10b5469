"""An operator that the consumer's thread runs by its reference: where it stands, what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import attrs

from flowdsl.node import AnyNode, Row
from flowdsl.plan.lower import StandIn
from flowdsl.runtime.places import Standing
from flowdsl.runtime.statistics import OperatorCost

_END = object()


@attrs.define
class _Spent:
    calls: int = 0
    seconds: float = 0.0


@attrs.frozen(eq=False)
class Hosted(StandIn):
    """An operator, or what it takes its elements from."""

    meaning: AnyNode  # pyright: ignore[reportIncompatibleMethodOverride]  # a field is a property too
    standing: Standing | None
    """Where it stands, if it can go on from there."""
    clock: bool
    """It is timed."""
    spent: _Spent = attrs.field(factory=_Spent)
    """With all that is below it."""

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        if self.standing is None:
            rows = self.meaning.rows(epoch)
        else:
            given, over = self.standing.begin()
            rows = self.standing.counted(self.meaning.rows_after(epoch, given, over))
        return self._timed(rows) if self.clock else rows

    def _timed(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        spent, clock = self.spent, time.perf_counter
        while True:
            began = clock()
            try:
                row = next(rows, _END)
            finally:
                spent.seconds += clock() - began
            if row is _END:
                return
            spent.calls += 1
            yield row  # type: ignore[misc]  # it is a row, since it is not the end

    def cost(self) -> OperatorCost:
        """What it has cost by itself."""
        below = (s.spent.seconds for s in self.meaning.sources if isinstance(s, Hosted))
        own = max(0.0, self.spent.seconds - sum(below))
        return OperatorCost(self.meaning.title, self.spent.calls, own)

"""An operator that the consumer's thread runs by its reference.

Where it stands, what it costs, and that what it has open closes with the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Self
from weakref import WeakSet

import attrs

from flowdsl.errors import FlowError
from flowdsl.node import AnyNode, Row
from flowdsl.plan.lower import StandIn
from flowdsl.runtime.places import Standing
from flowdsl.statistics.run import OperatorCost

_END = object()


@attrs.define
class _Spent:
    calls: int = 0
    seconds: float = 0.0


class Reading(chain[Row[Any]]):
    """The rows of an operator in one pass, closed when nobody asks for more of them.

    A traceback may hold what a run was reading for as long as somebody keeps the error, and what a
    file's or a socket's generator does in its ``finally`` is not to wait for that. So a run closes
    them at its end; before that, they close when the operator above lets go of them.
    """

    # A chain, since that gives one row after another in C.

    __slots__ = ("__weakref__", "_failed", "_rows")
    _rows: Any
    _failed: Callable[[Exception], None]

    def __new__(cls, rows: Iterator[Row[Any]], failed: Callable[[Exception], None]) -> Self:
        """``failed`` is told of what is raised as they close."""
        rows = rows if hasattr(rows, "close") else _closable(rows)
        reading = super().__new__(cls, rows)
        reading._rows, reading._failed = rows, failed
        return reading

    def close(self) -> None:
        """Whoever asks for more of them gets none."""
        try:
            self._rows.close()
        except Exception as error:
            self._failed(error)

    def __del__(self) -> None:
        self.close()


def _closable(rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
    """The same from a generator, which lets go of them when it is closed."""
    yield from rows


@attrs.frozen(eq=False)
class Hosted(StandIn):
    """An operator, or what it takes its elements from."""

    meaning: AnyNode  # pyright: ignore[reportIncompatibleMethodOverride]  # a field is a property too
    standing: Standing | None
    """Where it stands, if it can go on from there."""
    clock: bool
    """It is timed."""
    failures: list[FlowError]
    """What the run has to say yet: of what failed as it was closed."""
    spent: _Spent = attrs.field(factory=_Spent)
    """With all that is below it."""
    _open: WeakSet[Reading] = attrs.field(factory=WeakSet[Reading], init=False)

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        if self.failures:  # a pass below an endless ``repeat``: its end is all there is to say it
            raise self.failures.pop(0)
        if self.standing is None:
            rows = self._read(self.meaning.rows(epoch))
        else:
            given, over = self.standing.begin()
            rows = self._read(self.meaning.rows_after(epoch, given, over))
            rows = self.standing.counted(rows)
        return self._timed(rows) if self.clock else rows

    def _read(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        reading = Reading(rows, partial(_failed, self.meaning.title, self.failures))
        self._open.add(reading)
        return reading

    def end(self) -> None:
        """Close what it has open."""
        for reading in list(self._open):
            reading.close()

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


def _failed(title: str, failures: list[FlowError], error: Exception) -> None:
    failure = FlowError(f"{title} failed as it was closed: {error!r}")
    failure.__cause__ = error
    failures.append(failure)

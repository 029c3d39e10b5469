"""Channels: a plan bound to a run, where the rows of each of its parts come from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Protocol, Self, TypeAlias
from weakref import WeakSet

import attrs

from flowdsl.attempts import LeaveOut
from flowdsl.capabilities import Continuing
from flowdsl.errors import FlowError
from flowdsl.making.costs import cost_of
from flowdsl.making.make import Tell
from flowdsl.node import Row
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import Step, is_of_prefetch
from flowdsl.runtime.places import Standing
from flowdsl.statistics.run import OperatorCost, StageStatistics

_END = object()


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
        """The elements of one pass, from a position on, without their positions."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

    def statistics(self) -> StageStatistics:
        """What has been done so far."""
        ...


@attrs.define
class Spent:
    """What was spent on the rows that came through a channel."""

    calls: int = 0
    seconds: float = 0.0

    def timed(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """The rows, the time of each added."""
        clock = time.perf_counter
        while True:
            began = clock()
            try:
                row = next(rows, _END)
            finally:
                self.seconds += clock() - began
            if row is _END:
                return
            self.calls += 1
            yield row  # type: ignore[misc]  # it is a row, since it is not the end


@attrs.frozen(eq=False)
class StageChannel:
    """The rows of a stage, from where it runs."""

    stage: Stage
    runner: Runner
    standing: Standing = attrs.field(factory=Standing)
    clocked: Spent | None = None
    """Where what is above it is timed."""

    @property
    def step(self) -> Step:
        """The last of its operators."""
        return self.stage.top

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """One pass, from where the run is to begin with it."""
        start, _ = self.standing.begin()
        rows = self.runner.rows(epoch, start)
        return rows if self.clocked is None else self.clocked.timed(rows)

    def elements(self, epoch: int) -> Iterator[Any]:
        """The elements of one pass without their positions, which saves the cost of those."""
        start, _ = self.standing.begin()
        return self.runner.elements(epoch, start)


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
    """The rows from a generator, which lets go of them when it is closed."""
    yield from rows


@attrs.frozen(eq=False)
class HostedChannel:
    """The rows of an operator that the consumer's thread runs by its meaning."""

    step: Step
    sources: tuple[Channel, ...]
    standing: Standing | None
    """Where it stands, if it can go on from there."""
    tell: Tell
    """Is called with what it leaves out."""
    failures: list[FlowError]
    """What the run has to say yet: of what failed as it was closed."""
    clocked: Spent | None = None
    """Where it is timed, or what is above it is: with all that is below."""
    _open: WeakSet[Reading] = attrs.field(factory=WeakSet[Reading], init=False)

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """One pass, from where the run is to begin with it."""
        if self.failures:  # a pass below an endless ``repeat``: its end is all there is to say it
            raise self.failures.pop(0)
        node, sources = self.step.node, [source.rows for source in self.sources]
        if self.standing is not None and isinstance(node, Continuing):
            given, over = self.standing.begin()
            rows = self._read(node.rows_after(epoch, given, over, sources))
            rows = self.standing.counted(rows)
        elif isinstance(node, LeaveOut):
            rows = self._read(node.rows_telling(epoch, sources, partial(self.tell, self.step)))
        else:
            rows = self._read(node.rows(epoch, sources))
        return rows if self.clocked is None else self.clocked.timed(rows)

    def _read(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        reading = Reading(rows, partial(_failed, self.step, self.failures))
        self._open.add(reading)
        return reading

    def end(self) -> None:
        """Close what it has open."""
        for reading in list(self._open):
            reading.close()

    def cost(self) -> OperatorCost | None:
        """What it has cost by itself, if it was timed."""
        if self.clocked is None or not is_timed(self.step):
            return None
        below = sum(source.clocked.seconds for source in self.sources if source.clocked is not None)
        own = max(0.0, self.clocked.seconds - below)
        return cost_of(self.step, self.clocked.calls, own)


Channel: TypeAlias = StageChannel | HostedChannel


def is_timed(step: Step) -> bool:
    """Whether its own cost is of interest: an argument of ``prefetch`` has none."""
    return not is_of_prefetch(step.node)


def _failed(step: Step, failures: list[FlowError], error: Exception) -> None:
    failure = FlowError(f"{step.node.title} failed as it was closed: {error!r}")
    failure.__cause__ = error
    failures.append(failure)

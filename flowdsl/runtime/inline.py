"""Runs a stage in the consumer's own thread, one element at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, compress, repeat
from operator import length_hint
from typing import Any

import attrs

from flowdsl.elements.recycled import RECYCLED
from flowdsl.executor.codegen import Path
from flowdsl.executor.costs import costs_of
from flowdsl.executor.execute import ReportSkip
from flowdsl.executor.program import Program, element_error
from flowdsl.nodes import POSITION_LIMIT, Dropped, Failed, Indices, Row
from flowdsl.plan.plan import Stage
from flowdsl.statistics.run import DROPPED_IN_A_ROW
from flowdsl.statistics.stages import StageStatistics

_MAX_ROWS_PER_BLOCK = 8192


class Inline:
    """Runs a stage in the consumer's thread, and computes each element on demand."""

    def __init__(
        self,
        stage: Stage,
        report_skip: ReportSkip,
        time_operators: bool = False,
        when_sparse: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare; ``when_sparse`` is called if filters drop many elements and keep none."""
        self.stage = stage
        self._when_sparse = when_sparse
        self._program = _ReportingProgram(
            stage.program,
            RECYCLED.allocate,
            time_operators=time_operators,
            error=partial(element_error, stage),
            stage=stage,
            report_skip=report_skip,
        )
        self.counts_elements = False
        """True if ``next_position`` is needed: not all programs end in a loop over positions."""
        self._start = 0
        """The position at which the pass began."""
        self._to_come = repeat(True, POSITION_LIMIT)
        """A True for each element that may follow, if elements are counted."""
        self._began: float | None = None
        self._entered = 0
        """The number of positions in all blocks so far."""
        self._done = 0
        """The number of positions in finished blocks."""
        self._stop = 0
        """The end of the current block."""

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass, beginning at position ``start``."""
        return self._counted(map(self._program.rows, self._blocks(epoch, start)), start)

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Iterate over the elements of one pass, without their positions."""
        return self._counted(map(self._program.elements, self._blocks(epoch, start)), start)

    def _counted(self, blocks: Iterator[Iterable[Any]], start: int) -> Iterator[Any]:
        """Yield the elements of the blocks; count them if this is needed."""
        rows = chain.from_iterable(blocks)
        if not self.counts_elements or self.stage.drops:  # a stage that drops counts by its loop
            return rows
        self._start, self._to_come = start, repeat(True, POSITION_LIMIT)
        return compress(rows, self._to_come)

    @property
    def by_position(self) -> bool:
        """True: a pass can always begin at any position."""
        return True

    @property
    def next_position(self) -> int | None:
        """The next position to read; None if unknown."""
        if self.counts_elements and not self.stage.drops:
            return self._start + POSITION_LIMIT - length_hint(self._to_come)
        remaining = self._program.remaining
        return None if remaining is None else self._stop - remaining

    def close(self) -> None:
        """Close the files of the sources."""
        self._program.close()

    def statistics(self) -> StageStatistics:
        """Return the statistics so far; delivered elements are counted in finished blocks."""
        now = time.perf_counter()
        left_out = self._program.filtered + self._program.skipped
        delivered = max(0, self._done - left_out)
        return StageStatistics(
            operators=self.stage.titles,
            seconds=now - (self._began or now),
            entered=self._entered,
            delivered=delivered,
            filtered=self._program.filtered,
            skipped=self._program.skipped,
            in_flight=self._entered - left_out - delivered,
            costs=costs_of(self.stage, self._program.costs),
        )

    def _blocks(self, epoch: int, start: int) -> Iterator[Indices]:
        """Yield addresses in blocks: small blocks first, so that the first element comes soon."""
        self._began = self._began or time.perf_counter()
        most = max(1, _MAX_ROWS_PER_BLOCK // self.stage.rows_per_element)
        end, size = self.stage.positions, 1
        while end is None or start < end:
            stop = start + size if end is None else min(start + size, end)
            self._entered += stop - start
            self._stop = stop
            yield Indices.span(epoch, start, stop)
            self._done += stop - start
            if self._program.filtered == self._done and self._done >= DROPPED_IN_A_ROW:
                self._when_sparse()
            start, size = stop, min(16 * size, most)


@attrs.define
class _ReportingProgram(Program):
    """A program that reports each failed element as soon as it is skipped."""

    stage: Stage = attrs.field(kw_only=True)
    report_skip: ReportSkip = attrs.field(kw_only=True)
    skipped: int = attrs.field(default=0, init=False)

    def left_out(self, x: Dropped | Failed, path: Path) -> None:
        if isinstance(x, Failed):
            self.skipped += 1
            self.report_skip(self.stage.top.at(path), x)
        else:
            self.filtered += 1

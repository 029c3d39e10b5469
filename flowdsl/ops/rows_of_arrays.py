"""Stacked rows of sources that read rows together, below operators that choose and move rows.

The problem: stacking rows one by one takes a microsecond for each, and so does computing where a
shuffled row is. The choice: compute the positions of many rows at a time, and take all rows of a
batch together. Arrays in memory are read anywhere. Of the columns of a file, only rows that are
near each other are read together, as the rows between them are decoded too. Of other files, only
rows with no others between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import attrs
import numpy as np

from flowdsl.elements.structure import remade
from flowdsl.nodes import (
    POSITION_LIMIT,
    AnyNode,
    IndexTransform,
    Indices,
    Positions,
    ReadsSpans,
    Sliceable,
)
from flowdsl.ops.columns import Column, map_columns

_GAP = 64
"""Rows that are at most this far apart are taken from one span."""
_MOST_SLICED = 4
"""The limit on the rows in the spans of a ``Sliceable`` source, for each row that is taken."""
_LEAST_MOVED = 128
"""The least number of rows in a batch that is worth taking from spans, if they are moved."""
_LEAST_PER_SPAN = 8
"""The least number of rows in a span, on average; fewer rows are read faster one by one."""
_MOST_AHEAD = 1 << 14
"""The limit on the positions that are computed ahead."""


def spans_of(node: AnyNode) -> Callable[[int, int], Any] | None:
    """A reader of stacked elements of a node; None if they are read one by one."""
    return node.open_spans() if isinstance(node, ReadsSpans) else None


def slices_of(node: AnyNode) -> Callable[[int, int], Any] | None:
    """A reader of stacked elements of a node; None if they are not in arrays."""
    return node.open_spans() if isinstance(node, Sliceable) else None


def moved_rows_of(node: AnyNode) -> Callable[[int, int, int], Any] | None:
    """A reader of stacked rows, for a node that chooses or moves rows that are read in spans.

    It is called with an epoch and the positions of the first row and the end. The rows are taken
    from spans by their positions there. The reader returns None if they have to be read one by one.
    """
    length = POSITION_LIMIT if node.length is None else node.length
    moving: list[IndexTransform[Any, Any]] = []
    while isinstance(node, IndexTransform) and node.indexable:
        moving.append(node)
        node = node.source
    spans = spans_of(node)
    if spans is None:
        return None

    def resolve(addresses: Indices) -> Positions:
        for operator in moving:
            addresses = operator.resolve(addresses)
        return addresses.position

    if isinstance(node, Sliceable) and node.spans_cost_the_same:
        ahead = _PositionsAhead(resolve, length)

        def rows_in_memory(epoch: int, start: int, stop: int) -> Any:
            if stop <= start:  # beyond the greatest position
                return None
            return _taken_at(spans, ahead.between(epoch, start, stop))

        return rows_in_memory

    most_read = _MOST_SLICED if isinstance(node, Sliceable) else 1

    def rows_at(epoch: int, start: int, stop: int) -> Any:
        if stop <= start:
            return None
        if stop - start < _LEAST_MOVED:
            first, last = resolve(Indices.at(epoch, [start, stop - 1])).tolist()
            if last - first != stop - 1 - start:
                return None
        return _taken_from_near(spans, resolve(Indices.span(epoch, start, stop)), most_read)

    return rows_at


@attrs.define(eq=False)
class _PositionsAhead:
    """The positions in arrays of rows that are read in order, computed for many at a time.

    The position of a shuffled row takes 6 µs if 32 are computed at a time, and 0.1 µs of 16,384. So
    while one group of rows follows the other, twice as many are computed as the last time.
    """

    resolve: Callable[[Indices], Positions]
    length: int
    _known: tuple[int, int, Positions] = (0, 0, np.zeros(0, np.int64))
    """The epoch, the first row, and the positions of the rows from there on."""

    def between(self, epoch: int, start: int, stop: int) -> Positions:
        """Return the positions of the rows from ``start`` up to ``stop``, of one pass."""
        of, first, positions = self._known
        end = first + len(positions)
        if of != epoch or start < first or stop > end:
            n = stop - start
            groups = min(2 * len(positions), _MOST_AHEAD) // n if start == end else 0
            first, end = start, min(start + n * max(1, groups), self.length)
            positions = self.resolve(Indices.span(epoch, start, end))
            self._known = epoch, first, positions
        return positions[start - first : stop - first]


def _taken_at(spans: Callable[[int, int], Any], positions: Positions) -> Any:
    """Take rows at these positions of arrays in memory."""
    first, last = int(positions.min()), int(positions.max())
    span = spans(first, last + 1)
    return map_columns(partial(_taken, at=positions - first), span)


def _taken_from_near(spans: Callable[[int, int], Any], positions: Positions, most_read: int) -> Any:
    """Take rows at these positions, if most are near others; None if not.

    For each of them, at most ``most_read`` rows are read.
    """
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == len(positions) and (np.diff(positions) == 1).all():
        return copied(spans(first, last + 1))
    order = positions.argsort()
    groups = np.split(positions[order], np.flatnonzero(np.diff(positions[order]) > _GAP) + 1)
    read = sum(int(group[-1] - group[0]) + 1 for group in groups)
    many = len(groups) * _LEAST_PER_SPAN > len(positions) + _LEAST_PER_SPAN
    if many or read > most_read * len(positions):
        return None
    taken = []
    for group in groups:
        if (span := spans(int(group[0]), int(group[-1]) + 1)) is None:
            return None
        taken.append(map_columns(partial(_taken, at=group - group[0]), span))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    try:
        ascending = _joined(taken)
    except ValueError:  # arrays of several shapes: the batch says what is wrong
        return None
    return map_columns(partial(_taken, at=place), ascending)


def copied(span: Any) -> Any:
    """The columns of a span, which the consumer may change; None without a span."""
    return None if span is None else map_columns(_writable, span)


def _taken(column: Column, at: Positions) -> Column:
    """The rows of a column at these positions, as a copy."""
    if isinstance(column, list):
        return [column[i] for i in at.tolist()]
    if column.flags.c_contiguous:
        return column.take(at, axis=0)
    return np.ascontiguousarray(column[at])  # ``take`` would copy the whole column


def _joined(parts: Sequence[Any]) -> Any:
    """The columns of several parts, one after the other.

    Raises:
        ValueError: They have arrays of different shapes.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, dict):
        return {name: _joined([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        fields = {str(k): _joined([part[k] for part in parts]) for k in range(len(first))}
        return remade(type(first), fields)
    if isinstance(first, list):
        return list(chain.from_iterable(parts))
    return np.concatenate(parts)


def _writable(column: Column) -> Column:
    """The column, or a copy of it if it is read-only: the consumer may change a batch in place."""
    if isinstance(column, list) or column.flags.writeable:
        return column
    return column.copy(order="C")

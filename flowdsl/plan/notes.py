"""Notes for ``explain()`` on chains that are slow by nature, or whose batches may surprise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flowdsl.elements.specs import ArraySpec, ListSpec
from flowdsl.errors import FlowError
from flowdsl.nodes import (
    AnyNode,
    CodeTemplate,
    Elementwise,
    IndexedSource,
    IndexTransform,
    Indices,
    Sliceable,
    Windowed,
)

_MANY_ROWS = 1_000_000
"""From this number of rows on, a call of a function for each takes seconds."""

_SCATTERED_ROWS = 10_000
"""From this number of rows on, a pass that reads a block for each row is slow."""

_SAMPLE = 64
"""A note on a shuffle looks at the rows of this number of elements."""


def notes_on_speed(part: AnyNode) -> Iterator[str]:
    """Notes on an operator that makes a pass slow, each with what to write instead."""
    yield from _on_scattered_rows(part)
    yield from _on_single_rows(part)


def _on_scattered_rows(part: AnyNode) -> Iterator[str]:
    """A note on a shuffle of all rows, over a source that reads rows only in blocks."""
    if not isinstance(part, IndexTransform) or not part.order_varies_by_epoch:
        return
    source_and_rows = _first_rows(part)
    if source_and_rows is None:
        return
    source, rows = source_and_rows
    together, elements = source.rows_together, part.length
    if together is None or elements is None or elements < _SCATTERED_ROWS:
        return
    block_changes = np.count_nonzero(np.diff(rows // together))
    if block_changes > len(rows) // 2:
        yield (
            f"note: {part.title} reads {together:,} rows of {source.title} for nearly each of its "
            f"elements; in blocks each is read once: .shuffle(seed=1, block={together})"
            f".shuffle(buffer={together}, seed=2)"
        )


def _first_rows(part: AnyNode) -> tuple[IndexedSource[Any], Any] | None:
    """The source below an operator, and the number of the first row in each of some elements."""
    if not part.indexable or not part.length:
        return None
    at = Indices.span(0, 0, min(_SAMPLE, part.length))
    while not isinstance(part, IndexedSource):
        if isinstance(part, IndexTransform):
            at = part.resolve(at)
        elif isinstance(part, Windowed):
            at = Indices(at.epoch, at.position * part.stride)
        elif not isinstance(part, Elementwise):
            return None
        (part,) = part.sources
    return part, at.position


def _on_single_rows(part: AnyNode) -> Iterator[str]:
    """A note on functions that are called with each row of a large table, below a batch."""
    if not isinstance(part, Windowed) or not part.stacks:
        return
    below: AnyNode = part.source
    while isinstance(below, CodeTemplate) and not below.drops:
        function, below = below, below.source
        if not isinstance(below, Sliceable) or (below.length or 0) < _MANY_ROWS:
            continue
        if below.open_spans() is not None:
            yield (
                f"note: {function.title} runs for each of the {below.length:,} rows of "
                f"{below.title}; if it works on columns as well, write it after {part.title}, "
                f"which then copies slices of the columns"
            )


def note_on_lists(part: AnyNode) -> Iterator[str]:
    """A note on elements that are lists of arrays: a batch makes one array of each."""
    if not isinstance(part, Windowed) or not part.stacks:
        return
    try:
        spec = part.source.spec(True)
    except FlowError:  # the line of the operator shows it
        return
    if isinstance(spec, ListSpec) and isinstance(spec.item, ArraySpec) and spec.item.shape != ():
        yield (
            f"note: {part.title} makes one array of elements that are lists of arrays; with "
            f".map(tuple) below it, each array of a list is a component, with a batch of its own"
        )

"""A flow as a Ray Data dataset, whose tasks each compute a range of positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import ray.data
from numpy.typing import NDArray

from flowdsl.elements.structure import IS_MASKED, PLAIN, components, is_masked
from flowdsl.errors import SpecMismatch
from flowdsl.feeding.converting import leaves_of
from flowdsl.nodes import AnyNode, flow
from flowdsl.resources.worker_kinds import ACTORS
from flowdsl.workers.wire import ship

if TYPE_CHECKING:
    from flowdsl.flow import Flow

ROWS_PER_BATCH = 64
"""Rows that a task of Ray Data computes at a time."""

ROWS_PER_PART = 4096
"""By default, a part has about this many rows."""

MAX_PARTS = 256


def dataset_of(node: AnyNode, parts: int | None, epoch: int) -> ray.data.Dataset:
    """Return the dataset of ``to_ray``.

    Raises:
        NotShippable: An argument of an operator cannot be sent.
    """
    ship(node, ACTORS)
    n = _number_of_parts(node, parts)
    compute: Any = partial(_rows_of_parts, node, n, epoch)
    return ray.data.range(n, override_num_blocks=n).map_batches(compute, batch_size=1)


def _number_of_parts(node: AnyNode, parts: int | None) -> int:
    if not node.indexable or not node.length:
        return 1
    wanted = min(MAX_PARTS, -(-node.length // ROWS_PER_PART)) if parts is None else parts
    return min(wanted, node.length)


def _rows_of_parts(
    node: AnyNode, n: int, epoch: int, batch: Mapping[str, NDArray[np.int64]]
) -> Iterator[dict[str, Any]]:
    """Compute the rows of the parts in a batch, in the process of a Ray task."""
    for k in batch["id"]:
        part: Flow[Any, Any] = flow(node)
        if n > 1:
            assert node.length is not None
            start, stop = (node.length * int(i) // n for i in (k, k + 1))
            part = part.skip(start).take(stop - start)
        with part.epoch(epoch) as run:
            while rows := list(islice(run, ROWS_PER_BATCH)):
                yield _columns(rows)


def _columns(rows: Sequence[Any]) -> dict[str, Any]:
    """Return the columns of rows; where a row lacks a component, the value is None."""
    named = [_named(row) for row in rows]
    names = dict.fromkeys(name for row in named for name in row)
    return {name: _column([row.get(name) for row in named]) for name in names}


def _named(row: Any) -> dict[str, Any]:
    """Return the components of a row by the names of their columns.

    Raises:
        SpecMismatch: Two components have one name, or a component is a masked array: Ray Data
            would store the values below its mask.
    """
    parts = components(row)
    named = {"item": row} if parts is None else {str(name): part for name, part in parts}
    if parts is not None and len(named) < len(parts):
        keys = [name for name, _ in parts]
        raise SpecMismatch(
            f"to_ray: two of the keys {keys!r} are one name of a column; rename one with .map"
        )
    for name, part in named.items():
        if any(type(leaf) not in PLAIN and is_masked(leaf) for leaf in leaves_of(part)):
            raise SpecMismatch(f"to_ray: component {name!r} {IS_MASKED}")
    return named


def _column(values: list[Any]) -> Any:
    """Stack values of one shape and dtype; Ray Data stores other values one by one."""
    if all(isinstance(value, np.ndarray) for value in values):
        if len({(value.shape, value.dtype) for value in values}) == 1:
            return np.stack(values)
        column = np.empty(len(values), object)
        column[:] = values
        return column
    return values

"""The flow's method for Ray Data: to_ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Endless, Finite
from flowdsl.elements.structure import components
from flowdsl.errors import EndlessFlow, InvalidFlow
from flowdsl.nodes import AnyNode, E, FlowBase, T, flow, is_int
from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    import ray.data

    from flowdsl.flow import Flow

ROWS_PER_BATCH = 64
"""Rows that a task of Ray Data computes at a time."""

ROWS_PER_PART = 4096
"""By default, a part has about this many rows."""

MAX_PARTS = 256


class ToRay(FlowBase[T, E]):
    """A method that continues the flow in Ray Data."""

    def to_ray(
        self: FlowBase[Any, Finite], *, parts: int | None = None, epoch: int = 0
    ) -> ray.data.Dataset:
        """Return a ``ray.data.Dataset`` of the elements of one epoch, computed on the cluster.

        A row has a column for each component: a dict's keys, a record's fields, or "0", "1", ... of
        a tuple. An element without components is the column "item".

        The flow is divided into ``parts`` ranges of positions, each computed by one task of Ray
        Data; a flow without random access, such as a stream, is one part. The chain should have no
        ``prefetch``: Ray Data runs the tasks in parallel. Ray Data keeps the order of rows only if
        ``dataset.context.execution_options.preserve_order`` is True.

        Effects: the rows of the epoch, once each.

        Errors: ``MissingLibrary`` without Ray Data; ``EndlessFlow`` for a flow that never ends;
        ``InvalidFlow`` for ``parts < 1``; ``NotShippable`` if a function cannot be sent.

        >>> import flowdsl as fl
        >>> fl.from_range(3).repeat().to_ray()  # type: ignore[misc]  # an endless flow
        Traceback (most recent call last):
            ...
        flowdsl.errors.EndlessFlow: to_ray: from_range(3).repeat() never ends; write .take(n) before

        Source: ``ray.data.Dataset.map_batches``; the other way of ``from_ray``.
        """
        node = self.node
        if Endless in node.effects:
            raise EndlessFlow(f"to_ray: {node.title} never ends; write .take(n) before")
        if not is_int(epoch, 0):
            raise InvalidFlow(f"to_ray: epoch must be an int >= 0, got {epoch!r}")
        if parts is not None and not is_int(parts, 1):
            raise InvalidFlow(f"to_ray: parts must be an int >= 1, got {parts!r}")
        data = library("ray.data", "to_ray", "ray")
        n = _number_of_parts(node, parts)
        dataset: ray.data.Dataset = data.range(n, override_num_blocks=n).map_batches(
            partial(_rows_of_parts, node, n, epoch), batch_size=1
        )
        return dataset


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
    named = [_named(row) for row in rows]
    return {name: _column([row[name] for row in named]) for name in named[0]}


def _named(row: Any) -> dict[str, Any]:
    parts = components(row)
    return {"item": row} if parts is None else {str(name): part for name, part in parts}


def _column(values: list[Any]) -> Any:
    """Stack values if they are alike; otherwise Ray Data stores each by itself."""
    if all(isinstance(value, np.ndarray) for value in values):
        if len({(value.shape, value.dtype) for value in values}) == 1:
            return np.stack(values)
        column = np.empty(len(values), object)
        column[:] = values
        return column
    return values

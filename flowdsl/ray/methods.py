"""The flow's method for Ray Data: to_ray."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowdsl.effects import Endless, Finite
from flowdsl.errors import EndlessFlow, InvalidFlow
from flowdsl.nodes import E, FlowBase, T, is_int
from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    import ray.data


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
        ``InvalidFlow`` for ``parts < 1``; ``NotShippable`` if a function cannot be sent. The
        dataset raises ``SpecMismatch`` for a masked array, and for two components of one name.

        >>> import flowdsl as fl
        >>> fl.from_range(3).repeat().to_ray()  # type: ignore[misc]  # an endless flow
        Traceback (most recent call last):
            ...
        flowdsl.errors.EndlessFlow: to_ray: repeat() never ends; write .take(n) before

        Source: ``ray.data.Dataset.map_batches``; the reverse of ``from_ray``.
        """
        node = self.node
        if Endless in node.effects:
            raise EndlessFlow(f"to_ray: {node.title} never ends; write .take(n) before")
        if not is_int(epoch, 0):
            raise InvalidFlow(f"to_ray: epoch must be an int >= 0, got {epoch!r}")
        if parts is not None and not is_int(parts, 1):
            raise InvalidFlow(f"to_ray: parts must be an int >= 1, got {parts!r}")
        library("ray.data", "to_ray", "ray")
        dataset: ray.data.Dataset = import_module("flowdsl.ray.data").dataset_of(node, parts, epoch)
        return dataset

"""Operators that yield the same elements: they set the workers below them, or drop the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Generic

from flowdsl.effects import Reordered
from flowdsl.elements.specs import Spec
from flowdsl.nodes.base import (
    AnyNode,
    E,
    Indices,
    Node,
    PassFactory,
    Provenance,
    Row,
    T,
    cached_per_node,
)
from flowdsl.nodes.capabilities import (
    PassThrough,
    Reshardable,
    SkippedByProbe,
    position_after_reshard,
)
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.kinds.index_transforms import Copying
from flowdsl.resources.worker_kinds import WorkerKind, Workers


@frozen_node
class Identity(PassThrough[T, E], SkippedByProbe[T, E], Reshardable[T, E], Generic[T, E]):
    """A node that yields the elements of its source unchanged."""

    source: Node[T, E]

    @property
    def fingerprint(self) -> str:
        return ""

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    @property
    def looks_back(self) -> int | None:
        return 0

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return sources[0](epoch)

    def made_of(self, addresses: Indices) -> Provenance:
        return Provenance.one_each(addresses)

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        return position_after_reshard(self.source, saved_flow.sources[0], position)

    @property
    def depth(self) -> int:
        return self.source.depth  # it does not change the draws of seeded operators


@frozen_node
class Placement(Identity[T, E], Generic[T, E]):
    """Sets the workers on which the operators below it run."""

    workers: Workers

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous


@cached_per_node
def worker_kinds(node: AnyNode) -> frozenset[WorkerKind]:
    """The kinds of worker that a flow asks for, in any part of it."""
    below = frozenset[WorkerKind]().union(*map(worker_kinds, node.sources))
    if isinstance(node, Copying):
        return below | {node.kind}
    if isinstance(node, Placement) and node.workers.count:  # 0: no workers
        return below | {node.workers.kind}
    return below


class Unordered(Identity[T, E | Reordered], Generic[T, E]):
    """Yields elements in any order: as they are ready, if workers run directly below it."""

    order_varies_by_epoch: ClassVar[bool | None] = True

    @property
    def title(self) -> str:
        return "ordered=False"

    @property
    def positions_are_contiguous(self) -> bool:
        return False  # no element is missing, but they are out of order

"""Operators on several flows: they yield elements of each, or join one of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import Any, Generic

import attrs
import numpy as np

from flowdsl.elements.matching_specs import differences
from flowdsl.elements.specs import Spec, join, without_shapes
from flowdsl.errors import InvalidFlow, Where
from flowdsl.nodes.base import (
    AnyNode,
    E,
    Failed,
    Indices,
    Node,
    Positions,
    Provenance,
    T,
    cached_per_node,
)
from flowdsl.nodes.capabilities import (
    MadeFromLatest,
    PassThrough,
)
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.kinds.placement import Identity
from flowdsl.nodes.validation import method_name
from flowdsl.resources.any_depth import any_depth


def _validate_alike(node: Merging[Any, Any], field: object, value: object) -> None:
    difference = node.difference(probe=False)
    if difference is not None:
        raise InvalidFlow(f"{method_name(node)}: {difference}")


@frozen_node
class Merging(PassThrough[T, E], Generic[T, E]):
    """An operator that yields elements of several flows, its parts."""

    parts: tuple[Node[T, E], ...] = attrs.field(validator=_validate_alike)

    def difference(self, probe: bool) -> str | None:
        """Describe how the specs of two parts differ, apart from sizes, and how to fix it."""
        # Many flows have few specs: the first part of each is compared.
        first_with = dict[Spec, tuple[Spec, str]]()
        for part in self.parts:
            spec = part.spec(probe)
            first_with.setdefault(without_shapes(spec), (spec, _below_identities(part).title))
        for (spec_a, title_a), (spec_b, title_b) in combinations(first_with.values(), 2):
            for name, a, b in differences(spec_a, spec_b):
                return f"{name} is {a} in {title_a} and {b} in {title_b}; make them alike with .map"
        return None

    @property
    @cached_per_node
    def length(self) -> int | None:
        total = 0
        for part in self.parts:
            if part.length is None:
                return None
            total += part.length
        return total

    @abstractmethod
    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        """For each address, the number of the part and the address in that part.

        The numbers have the shape ``(elements,)`` and the dtype ``int64`` of the addresses. It is
        called only if the operator is indexable.
        """

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return reduce(join, (part.spec(probe) for part in self.parts))

    @property
    def looks_back(self) -> int | None:
        return 0

    def made_of(self, addresses: Indices) -> Provenance | None:
        if not self.indexable:
            return None
        part, part_addresses = self.resolve(addresses)
        return Provenance.one_each(part_addresses, part)


@any_depth
def _below_identities(node: AnyNode) -> AnyNode:
    """The operator that makes the elements, below operators such as ``prefetch``."""
    return _below_identities(node.source) if isinstance(node, Identity) else node


@frozen_node
class Joining(MadeFromLatest[T, E], Generic[T, E]):
    """An operator that joins the elements at the same position of several flows into one."""

    parts: tuple[AnyNode, ...]

    @abstractmethod
    def gather(self, group: Sequence[Any]) -> T:
        """Make one element of a group of elements, one from each flow."""

    def join(self, group: Sequence[Any]) -> Any:
        """Make one element of a group, or return the first failure in it."""
        for x in group:
            if isinstance(x, Failed):
                return x
        return self.gather(group)

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    @property
    def looks_back(self) -> int | None:
        return 0

    def made_of(self, addresses: Indices) -> Provenance | None:
        if not self.indexable:
            return None
        elements, n = len(addresses.position), len(self.parts)
        return Provenance(
            at=Indices(np.repeat(addresses.epoch, n), np.repeat(addresses.position, n)),
            source=np.tile(np.arange(n), elements),
            counts=np.full(elements, n),
        )

    def origin(self, epoch: int, position: int) -> Where:
        if not self.indexable:
            return super().origin(epoch, position)
        origins = dict.fromkeys(part.origin(epoch, position) for part in self.parts)  # each once
        return Where(" and ".join(origins))

"""Operators that choose or reorder elements without looking at them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np

from flowdsl.elements.specs import Spec
from flowdsl.nodes.base import (
    A,
    AnyNode,
    E,
    Indices,
    Node,
    PassFactory,
    Positions,
    Provenance,
    Row,
    T,
    cached_per_node,
)
from flowdsl.nodes.capabilities import (
    PassThrough,
)
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.validation import POSITION_LIMIT
from flowdsl.resources.worker_kinds import PROCESSES, WorkerKind

_Number = TypeVar("_Number", int, Positions)


@frozen_node
class IndexTransform(PassThrough[T, E], Generic[T, E]):
    """An operator that chooses or reorders elements without looking at them."""

    keeps_positions: ClassVar[bool] = False
    """True if each element keeps the position that it has in the source."""

    repeats_elements: ClassVar[bool] = False
    """True if an element computed once is yielded at several positions, so must be read-only."""

    @property
    def shard(self) -> tuple[int, int] | None:
        """The number of shards and the selected shard; None if it does not shard the source."""
        return None

    def first_of(self, n: int) -> AnyNode:
        """This operator as the first of ``n`` shards."""
        raise AssertionError(f"{self.title} does not shard its source; asked for one of {n} shards")

    source: Node[T, E]

    @abstractmethod
    def resolve(self, addresses: Indices) -> Indices:
        """Map the addresses of elements to their addresses in the source, in the same order.

        It is called only if the operator is indexable.
        """

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous or not self.keeps_positions

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    @property
    def looks_back(self) -> int | None:
        return 0

    def made_of(self, addresses: Indices) -> Provenance | None:
        if self.keeps_positions:
            return Provenance.one_each(addresses)
        return Provenance.one_each(self.resolve(addresses)) if self.indexable else None


@frozen_node
class Copying(IndexTransform[T, E], Generic[T, E]):
    """``n`` interleaved passes: copy ``k`` in epoch ``e`` is epoch ``e * n + k`` of the source.

    Its ``rows`` accepts one source, or ``n`` equal sources that different workers read.
    """

    n: int
    kind: WorkerKind = PROCESSES
    """The kind of workers; each worker runs one copy."""

    def resolve(self, addresses: Indices) -> Indices:
        position, copy = np.divmod(addresses.position, self.n)
        return Indices(epoch_of_copy(addresses.epoch, self.n, copy), position)

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.source.length is None else self.source.length * self.n

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        passes = [
            sources[k % len(sources)](epoch_of_copy(epoch, self.n, k))  # one source for all, or n
            for k in range(self.n)
        ]
        return enumerate(in_turn(passes))


def epoch_of_copy(epoch: _Number, n: int, copy: _Number) -> _Number:
    """The source's epoch for a copy, modulo 2**62: ``repeat`` passes epochs that are hashes."""
    return (epoch * n + copy) % POSITION_LIMIT


def in_turn(passes: list[Iterator[Row[A]]]) -> Iterator[A]:
    """Yield one element of each pass, round-robin; passes that have ended are skipped."""
    while passes:
        for rows in list(passes):
            row = next(rows, None)
            if row is None:
                passes.remove(rows)
            else:
                yield row[1]

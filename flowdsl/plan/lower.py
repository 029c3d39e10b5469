"""From a tree of operators to stages: what runs together, where, and what travels to it.

Late reading: over random-access sources, operators that only choose or reorder are arithmetic on
positions. A stage over such a flow is sent ranges of positions, a few bytes each; its workers read,
map and batch. Over a stream, or a list in this process's memory, the elements travel instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar

import attrs

from flowdsl.effects import Effect, Tag
from flowdsl.errors import Where
from flowdsl.node import (
    AnyNode,
    Elementwise,
    Grouping,
    Node,
    Placement,
    Row,
    with_sources,
)
from flowdsl.plan.tree import bases_of, walk
from flowdsl.specs import UNKNOWN, Spec


class StandIn(Node[Any, Effect]):
    """A node in the place of another, which it agrees with in all but how its rows are made."""

    identity: ClassVar[bool] = True

    @property
    @abstractmethod
    def meaning(self) -> AnyNode:
        """The operators that it stands for, and everything below them."""

    @property
    def sources(self) -> tuple[AnyNode, ...]:
        return (self.meaning,)

    @property
    def title(self) -> str:
        return self.meaning.title

    @property
    def length(self) -> int | None:
        return self.meaning.length

    @property
    def indexable(self) -> bool:
        return self.meaning.indexable

    @property
    def dense(self) -> bool:
        return self.meaning.dense

    def spec(self, probe: bool) -> Spec:
        return self.meaning.spec(probe)

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        return self.meaning.rows(epoch)

    def origin(self, epoch: int, position: int) -> Where:
        return self.meaning.origin(epoch, position)


@attrs.frozen
class Stage(StandIn):
    """Operators that run together, in ``procs`` workers or, with 0, in this process."""

    meaning: AnyNode  # pyright: ignore[reportIncompatibleMethodOverride]  # a field is a property too

    program: AnyNode
    """What a worker runs: like ``meaning``, but begun by ``Supplied`` where elements travel."""

    bases: tuple[AnyNode, ...]
    """What this process reads and sends to the workers; none where they read for themselves."""

    procs: int

    @property
    def drops(self) -> bool:
        """It may give fewer elements than the positions it is sent."""
        return any(isinstance(node, Elementwise) and node.drops for node in walk(self.program))

    @property
    def rows_per_element(self) -> int:
        """How many elements of a streaming base make one element of the stage."""
        return prod(node.n for node in walk(self.program) if isinstance(node, Grouping))


@attrs.frozen
class Supplied(Node[Any, Effect]):
    """The place in a program where elements arrive from the coordinating process.

    The operators above it see what they saw of the base: they may ask for any of it again.
    """

    slot: int
    """The number of the base, among those of the stage."""
    rows_supplied: int | None
    random_access: bool
    tags: frozenset[Tag]

    @classmethod
    def like(cls, base: AnyNode, slot: int) -> Supplied:
        """The place of this base."""
        return cls(slot, base.length, base.indexable, base.effects)

    @property
    def title(self) -> str:
        return "supplied"

    @property
    def length(self) -> int | None:
        return self.rows_supplied

    @property
    def indexable(self) -> bool:
        return self.random_access

    @property
    def effects(self) -> frozenset[Tag]:
        return self.tags

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        raise AssertionError("a program runs on what it is supplied with")


def lower(node: AnyNode) -> AnyNode:
    """Put every operator into a stage, or leave it to this process."""
    if isinstance(node, Placement):
        return _stage(node.source, node.procs)
    if node.indexable and not any(isinstance(part, Placement) for part in walk(node)):
        return Stage(node, node, (), 0)
    return with_sources(node, tuple(lower(source) for source in node.sources))


def _stage(meaning: AnyNode, procs: int) -> Stage:
    bases = bases_of(meaning)
    program = _supplied(meaning, list(enumerate(bases)))
    return Stage(meaning, program, tuple(map(lower, bases)), procs)


def _supplied(node: AnyNode, bases: list[tuple[int, AnyNode]]) -> AnyNode:
    """The same with every base replaced; a flow that stands in two places is two bases."""
    if bases and node is bases[0][1]:
        slot, base = bases.pop(0)
        return Supplied.like(base, slot)
    return with_sources(node, tuple(_supplied(source, bases) for source in node.sources))

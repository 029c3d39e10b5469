"""From a tree of operators to stages: what runs together, where, and what travels to it.

Late reading: over random-access sources, operators that only choose or reorder are arithmetic on
positions. A stage over such a flow is sent ranges of positions, a few bytes each; its workers read,
map and batch. Over a stream, or a list in this process's memory, the elements travel instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar, Literal

import attrs

from flowdsl.effects import Effect, Resampled, Tag
from flowdsl.errors import Where
from flowdsl.kinds import (
    Copying,
    Elementwise,
    Grouping,
    Placement,
    Unordered,
    epoch_of_copy,
    in_turn,
)
from flowdsl.node import AnyNode, Node, Row, with_sources
from flowdsl.plan.tree import bases_of, beside, walk
from flowdsl.specs import UNKNOWN, Spec
from flowdsl.worker_kinds import PROCESSES, Workers

NOBODY = Workers()


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
    """Operators that run together, in workers or in the consumer's thread."""

    meaning: AnyNode  # pyright: ignore[reportIncompatibleMethodOverride]  # a field is a property too

    program: AnyNode
    """What a worker runs: like ``meaning``, but begun by ``Supplied`` where elements travel."""

    bases: tuple[AnyNode, ...]
    """What this process reads and sends to the workers; none where they read for themselves."""

    workers: Workers = NOBODY
    """Who runs it: the consumer's thread itself, where there are none."""

    ordered: bool = True
    """Its elements are delivered in their order, and not as they are ready."""

    whole: bool = False
    """A worker runs it from end to end, by its reference, and not a piece here and there."""

    @property
    def drops(self) -> bool:
        """It may give fewer elements than the positions it is sent."""
        return any(isinstance(node, Elementwise) and node.drops for node in walk(self.program))

    @property
    def copies(self) -> Literal["rows", "passes"] | None:
        """What its workers share, where ``replicate`` asked for them: rows, or passes, one each."""
        if self.whole:
            return "passes"
        return "rows" if isinstance(self.meaning, Copying) else None

    @property
    def operators(self) -> Iterator[AnyNode]:
        """Those that it runs itself, in the order in which elements meet them."""
        return (node for node, _ in self.parts if not isinstance(node, Supplied))

    @property
    def parts(self) -> Iterator[tuple[AnyNode, int]]:
        """The same, begun by ``Supplied`` where elements travel, and how deep each is."""
        for node, run, deep in beside(self.meaning, self.program):
            yield run if isinstance(run, Supplied) else node, deep

    @property
    def positions(self) -> int | None:
        """The end of its positions: its own length, or that of what it filters."""
        node = self.meaning
        while not node.indexable:
            node = node.sources[0]
        return node.length

    @property
    def rows_per_element(self) -> int:
        """How many elements of a streaming base make one element of the stage."""
        return prod(group.n for group in self._groupings)

    def elements_of(self, rows: int) -> int:
        """How many elements so many rows of a streaming base make, the last of the stream."""
        for group in self._groupings:
            rows = rows // group.n if group.drop_remainder else -(-rows // group.n)
        return rows

    @property
    def _groupings(self) -> Iterator[Grouping[Any, Any, Any]]:
        return (node for node in walk(self.program) if isinstance(node, Grouping))


@attrs.frozen
class Copies(Node[Any, Resampled]):
    """Passes of one flow, in turn, each run from end to end by a worker of its own."""

    copies: tuple[AnyNode, ...]
    of: str
    """The title of what they are the copies of."""

    @property
    def title(self) -> str:
        return self.of

    @property
    def length(self) -> int | None:
        one = self.copies[0].length
        return None if one is None else one * len(self.copies)

    def spec(self, probe: bool) -> Spec:
        return self.copies[0].spec(probe)

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        n = len(self.copies)
        passes = (copy.rows(epoch_of_copy(epoch, n, k)) for k, copy in enumerate(self.copies))
        return enumerate(in_turn(list(passes)))


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
        return _stage(node.source, node.workers)
    if isinstance(node, Unordered) and isinstance(node.source, Placement):
        stage = _stage(node.source.source, node.source.workers, ordered=False)
        return with_sources(node, (stage,))
    if isinstance(node, Copying) and not node.indexable:
        return Copies(tuple(_copy(node.source) for _ in range(node.n)), node.title)
    if _from_positions(node) and not any(isinstance(part, Placement) for part in walk(node)):
        return Stage(node, node, ())
    return with_sources(node, tuple(lower(source) for source in node.sources))


def _from_positions(node: AnyNode) -> bool:
    """Whether it is random-access, or made of what is, an element of each or none."""
    if isinstance(node, Elementwise) and not node.counts:
        return _from_positions(node.source)
    return node.indexable


def held_above(plan: AnyNode, stage: Stage) -> int:
    """How many elements of a stage the operators of this process above it keep at a time."""
    return (_held(plan, stage) or (1, 0))[1]


def _held(node: AnyNode, stage: Stage) -> tuple[int, int] | None:
    """The elements of the stage in one of the node, and those that are kept up to it."""
    if node is stage:
        return 1, 0
    for source in node.sources if not isinstance(node, Stage) else node.bases:
        if (below := _held(source, stage)) is not None:
            size, held = below
            if isinstance(node, Stage):
                return 1, 0  # what is sent on from here is in flight there
            return size * (node.n if isinstance(node, Grouping) else 1), held + node.holds * size
    return None


def _copy(meaning: AnyNode) -> Stage:
    """A process for all of it; of a prefetch there, only what it says of elements remains."""
    limits = meaning.workers if isinstance(meaning, Placement) else NOBODY
    workers = attrs.evolve(limits, kind=PROCESSES, count=1)
    return Stage(meaning, meaning, (), workers, whole=True)


def _stage(meaning: AnyNode, workers: Workers, ordered: bool = True) -> Stage:
    bases = bases_of(meaning)
    program = _supplied(meaning, list(enumerate(bases)))
    return Stage(meaning, program, tuple(map(lower, bases)), workers, ordered)


def _supplied(node: AnyNode, bases: list[tuple[int, AnyNode]]) -> AnyNode:
    """The same with every base replaced; a flow that stands in two places is two bases."""
    if bases and node is bases[0][1]:
        slot, base = bases.pop(0)
        return Supplied.like(base, slot)
    return with_sources(node, tuple(_supplied(source, bases) for source in node.sources))

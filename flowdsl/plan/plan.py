"""A plan: what of a flow runs together, where, and what travels to it.

It is a value, made once for a flow: a run binds it to workers, to a position and to whom it tells
of what is left out, and changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, Generic, Literal, TypeAlias

import attrs

from flowdsl.effects import Effect
from flowdsl.kinds import Aside, Copying, Elementwise, Gathering
from flowdsl.node import AnyNode, Node, T
from flowdsl.plan.tree import Step, walk
from flowdsl.worker_kinds import Workers

NOBODY = Workers()


@attrs.frozen(eq=False)
class Lookup:
    """Rows in the consumer's memory, looked up by position as a stage is supplied with them."""

    top: Step
    """The last of its operators."""

    @property
    def steps(self) -> Sequence[Step]:
        """Its operators, in the order in which elements meet them."""
        return walk(self.top)


@attrs.frozen(eq=False)
class Hosted:
    """An operator that the consumer's thread runs by its meaning, over what the parts give."""

    top: Step
    sources: tuple[Part, ...]
    """One for each of its own sources; of a ``Copying``, one for each copy."""


@attrs.frozen(eq=False)
class Stage:
    """Operators that run together as a program, in workers or in the consumer's thread."""

    number: int
    """Among the stages of the plan, and in the statistics of a run."""

    top: Step
    """The last of its operators; with all that is below it, it says what the elements mean."""

    program: AnyNode
    """What is run: the operators, begun by ``Supplied`` where elements travel."""

    bases: tuple[Base, ...] = ()
    """What the consumer's thread reads and sends to the workers; none where they read alone."""

    workers: Workers = NOBODY
    """Who runs it: the consumer's thread itself, where there are none."""

    ordered: bool = True
    """Its elements are delivered in their order, and not as they are ready."""

    whole: bool = False
    """A worker runs it from end to end, by its reference, and not a lease here and there."""

    @property
    def meaning(self) -> AnyNode:
        """The flow whose elements it gives."""
        return self.top.node

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The operators that it runs itself, in the order in which elements meet them."""
        others = {id(step) for base in self.bases for step in walk(base.top)}
        return tuple(step for step in walk(self.top) if id(step) not in others)

    @cached_property
    def titles(self) -> tuple[str, ...]:
        """How a chain spells them; what stands for an argument of ``prefetch`` is none."""
        return tuple(step.node.title for step in self.steps if not isinstance(step.node, Aside))

    @cached_property
    def drops(self) -> bool:
        """It may give fewer elements than the positions it is sent."""
        return any(isinstance(node, Elementwise) and node.drops for node in walk(self.program))

    @cached_property
    def copies(self) -> Literal["rows", "passes"] | None:
        """What its workers share, where ``replicate`` asked for them: rows, or passes, one each."""
        if self.whole:
            return "passes"
        return "rows" if isinstance(self.meaning, Copying) else None

    @cached_property
    def positions(self) -> int | None:
        """The end of its positions: its own length, or that of what it filters."""
        node = self.meaning
        while not node.indexable:
            node = node.sources[0]
        return node.length

    @cached_property
    def rows_per_element(self) -> int:
        """How many elements of a streaming base make one element of the stage."""
        return prod(group.n for group in self._groupings)

    def elements_of(self, rows: int) -> int:
        """How many elements so many rows of a streaming base make, the last of the stream."""
        for group in self._groupings:
            rows = rows // group.n if group.drop_remainder else -(-rows // group.n)
        return rows

    @property
    def _groupings(self) -> Iterator[Gathering[Any, Any, Any]]:
        return (node for node in walk(self.program) if isinstance(node, Gathering))


Part: TypeAlias = Stage | Hosted
Base: TypeAlias = Stage | Hosted | Lookup


@attrs.frozen(eq=False)
class Plan(Generic[T]):
    """How a flow is run."""

    node: Node[T, Effect]
    """The flow as it is written."""
    root: Part
    stages: tuple[Stage, ...]
    """By their numbers: in the order in which elements meet them."""

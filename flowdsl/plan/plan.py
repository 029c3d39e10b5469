"""A plan: which operators of a flow run together, where, and what is sent there.

A plan is a value, made once for a flow: a run binds it to workers, to a position and to a handler
of failures, and changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, Generic, Literal, TypeAlias

import attrs

from flowdsl.effects import Effect
from flowdsl.nodes import AnyNode, Copying, Elementwise, Identity, Node, T, Windowed
from flowdsl.plan.tree import Step, walk
from flowdsl.resources.worker_kinds import Workers

NOBODY = Workers()


@attrs.frozen(eq=False)
class Lookup:
    """Rows in the consumer's memory, looked up by position as a stage is supplied with them."""

    top: Step
    """The last operator of the lookup."""

    @property
    def steps(self) -> Sequence[Step]:
        """The operators of the lookup, in the order in which elements meet them."""
        return walk(self.top)


@attrs.frozen(eq=False)
class Hosted:
    """An operator that the consumer's thread runs by its reference, over the parts below."""

    top: Step
    sources: tuple[Part, ...]
    """The parts below: one for each source of the operator, or each copy of a ``Copying``."""


@attrs.frozen(eq=False)
class Ahead:
    """What a thread of the consumer's process reads ahead of it: no worker could run any of it."""

    source: Part
    workers: Workers
    """What the prefetch asked for; of it only ``memory`` matters here."""

    @property
    def top(self) -> Step:
        """The last operator that the thread runs."""
        return self.source.top

    @property
    def sources(self) -> tuple[Part, ...]:
        """What it reads, as of other parts."""
        return (self.source,)


@attrs.frozen(eq=False)
class Stage:
    """Operators that run together as a program, in workers or in the consumer's thread."""

    number: int
    """The stage's number in the plan, and in the statistics of a run."""

    top: Step
    """The last operator of the stage; with all that is below it, it defines the elements."""

    program: AnyNode
    """The operators as they are run, over ``Supplied`` where elements are sent to the stage."""

    bases: tuple[Base, ...] = ()
    """The parts that this process reads and sends to workers; none if these read."""

    workers: Workers = NOBODY
    """The workers that run the stage; with none, the consumer's thread does."""

    ordered: bool = True
    """Whether elements are delivered in their order, and not as they are ready."""

    end_to_end: bool = False
    """Whether one worker runs the whole stage from end to end, by its reference."""

    together: int = 0
    """The number of workers of all stages of the plan: they divide the cores among them."""

    @property
    def meaning(self) -> AnyNode:
        """The flow whose elements the stage gives."""
        return self.top.node

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The operators that the stage runs itself, in the order in which elements meet them."""
        others = {id(step) for base in self.bases for step in walk(base.top)}
        return tuple(step for step in walk(self.top) if id(step) not in others)

    @cached_property
    def titles(self) -> tuple[str, ...]:
        """The titles of the stage's operators, without arguments of ``prefetch``."""
        return tuple(step.node.title for step in self.steps if not isinstance(step.node, Identity))

    @cached_property
    def drops(self) -> bool:
        """Whether the stage may give fewer elements than the positions it is sent."""
        return any(isinstance(node, Elementwise) and node.drops for node in walk(self.program))

    @cached_property
    def copies(self) -> Literal["rows", "passes"] | None:
        """What workers of a ``replicate`` divide among them: rows, or passes, one each."""
        if self.end_to_end:
            return "passes"
        return "rows" if isinstance(self.meaning, Copying) else None

    @cached_property
    def positions(self) -> int | None:
        """The end of the stage's positions: its length, or that of the flow that it filters."""
        node = self.meaning
        while not node.indexable:
            node = node.sources[0]
        return node.length

    @cached_property
    def rows_per_element(self) -> int:
        """How many elements of a streaming base make one element of the stage."""
        return prod(group.n for group in self._groupings)

    def elements_of(self, rows: int) -> int:
        """How many elements the last ``rows`` rows of a streaming base make."""
        for group in self._groupings:
            rows = rows // group.n if group.drop_remainder else -(-rows // group.n)
        return rows

    @property
    def _groupings(self) -> Iterator[Windowed[Any, Any, Any]]:
        return (node for node in walk(self.program) if isinstance(node, Windowed))


Part: TypeAlias = Stage | Hosted | Ahead
Base: TypeAlias = Part | Lookup


@attrs.frozen(eq=False)
class Plan(Generic[T]):
    """How a flow is run."""

    node: Node[T, Effect]
    """The flow as it is written."""
    root: Part
    stages: tuple[Stage, ...]
    """The stages by number, in the order in which elements meet them."""

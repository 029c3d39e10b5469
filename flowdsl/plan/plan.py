"""A plan: the stages of a flow, the workers of each, and the elements that are sent to them.

A plan is an immutable value, made once for a flow: a run binds it to workers, to a position and to
a handler of failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, Generic, Literal, TypeAlias

import attrs

from flowdsl.effects import Effect
from flowdsl.nodes import (
    Acknowledging,
    AnyNode,
    Copying,
    Elementwise,
    Identity,
    Node,
    StoresPass,
    T,
    Windowed,
)
from flowdsl.nodes.failures import AttemptToRead
from flowdsl.plan.tree import Step, walk
from flowdsl.resources.worker_kinds import Workers

NO_WORKERS = Workers()


@attrs.frozen(eq=False)
class Lookup:
    """Rows in the consumer's memory, which are looked up by position and sent to a stage."""

    top: Step
    """The last operator of the lookup."""

    @property
    def steps(self) -> Sequence[Step]:
        """The operators of the lookup, in the order in which elements pass them."""
        return walk(self.top)


@attrs.frozen(eq=False)
class Hosted:
    """An operator that the consumer's thread runs by its reference, over the parts below."""

    top: Step
    sources: tuple[Part, ...]
    """The parts below: one for each source of the operator, or each copy of a ``Copying``."""


@attrs.frozen(eq=False)
class AheadInThread:
    """Operators that a thread of the consumer's process runs ahead, as workers cannot run them."""

    source: Part
    workers: Workers
    """The argument of the prefetch; only its ``memory`` is used here."""

    @property
    def top(self) -> Step:
        """The last operator that the thread runs."""
        return self.source.top

    @property
    def sources(self) -> tuple[Part, ...]:
        """The parts below, as in other parts."""
        return (self.source,)


@attrs.frozen(eq=False)
class Stage:
    """Operators that run together as a program, in workers or in the consumer's thread."""

    number: int
    """The stage's number in the plan, and in the statistics of a run."""

    top: Step
    """The last operator of the stage; with all operators below it, it defines the elements."""

    program: AnyNode
    """The operators as they are run, over ``Supplied`` where elements are sent to the stage."""

    bases: tuple[Base, ...] = ()
    """The parts that this process reads and sends to workers; empty if workers read sources."""

    workers: Workers = NO_WORKERS
    """The workers that run the stage; without workers, the consumer's thread runs it."""

    ordered: bool = True
    """True if elements are delivered in order; False if they are delivered as they are ready."""

    end_to_end: bool = False
    """True if one worker runs the stage from its sources to its end, in order, by its reference."""

    together: int = 0
    """The number of workers of all stages of the plan, which share the cores."""

    @property
    def meaning(self) -> AnyNode:
        """The flow whose elements the stage delivers."""
        return self.top.node

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The operators that the stage runs itself, in the order in which elements pass them."""
        others = {id(step) for base in self.bases for step in walk(base.top)}
        return tuple(step for step in walk(self.top) if id(step) not in others)

    @cached_property
    def titles(self) -> tuple[str, ...]:
        """The titles of the stage's operators, except ``prefetch`` and its like."""
        return tuple(step.node.title for step in self.steps if not isinstance(step.node, Identity))

    @cached_property
    def drops(self) -> bool:
        """True if the stage may yield fewer elements than the positions that it is sent."""
        return any(isinstance(node, Elementwise) and node.drops for node in walk(self.program))

    @cached_property
    def copies(self) -> Literal["rows", "passes"] | None:
        """The division of a ``replicate`` among its workers: by rows, or a whole pass each."""
        if self.end_to_end:
            return "passes"
        return "rows" if isinstance(self.meaning, Copying) else None

    @cached_property
    def positions(self) -> int | None:
        """The end of the stage's positions: its length, or the length of what it filters."""
        node = self.meaning
        while not node.indexable:
            node = node.sources[0]
        return node.length

    @cached_property
    def rows_per_element(self) -> int:
        """The number of elements of a streaming base in one element of the stage."""
        return prod(group.n for group in self._groupings)

    def elements_of(self, rows: int) -> int:
        """The number of elements that the last ``rows`` rows of a streaming base form."""
        for group in self._groupings:
            rows = rows // group.n if group.drop_remainder else -(-rows // group.n)
        return rows

    @property
    def _groupings(self) -> Iterator[Windowed[Any, Any, Any]]:
        return (node for node in walk(self.program) if isinstance(node, Windowed))


Part: TypeAlias = Stage | Hosted | AheadInThread
Base: TypeAlias = Part | Lookup
"""The input that this process reads and sends to the workers of a stage."""


@attrs.frozen(eq=False)
class Plan(Generic[T]):
    """The parts of a flow that run: its stages, and the operators that the consumer hosts."""

    node: Node[T, Effect]
    """The flow as it is written."""
    root: Part
    """The last part, from which the consumer gets its elements."""
    stages: tuple[Stage, ...]
    """The stages by number, in the order in which elements pass them."""

    @cached_property
    def drops(self) -> bool:
        """True if an operator may leave elements out."""
        return any(isinstance(node, Elementwise) and node.drops for node in walk(self.node))

    @cached_property
    def storing(self) -> Sequence[StoresPass[Any]]:
        """The sources, such as caches in files, that a pass of their own fills before a run."""
        parts = walk(self.node)
        sources = (
            part.attempted.node if isinstance(part, AttemptToRead) else part for part in parts
        )
        return [source for source in sources if isinstance(source, StoresPass)]

    @cached_property
    def acknowledging(self) -> Sequence[Acknowledging[Any, Any]]:
        """The sources that acknowledge delivered rows."""
        return [node for node in walk(self.node) if isinstance(node, Acknowledging)]

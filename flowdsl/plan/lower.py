"""Lowering: from steps to a plan, with its stages and the elements that are sent to them.

Problem: workers need their inputs. The naive way is that the consumer reads rows and sends them,
which limits the speed to one process and copies every row. So rows are read late: over
random-access sources, operators that only choose or reorder are arithmetic on positions. The
workers of a stage over these operators receive ranges of positions, a few bytes each, and read,
map and batch the rows. They receive elements only over a stream, or over rows in this process's
memory, unless they are threads and the rows are in arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from flowdsl.effects import Effect
from flowdsl.nodes import (
    AnyNode,
    Buffering,
    Copying,
    Node,
    Placement,
    T,
    Unordered,
    Windowed,
    with_sources,
)
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.optimize import optimize
from flowdsl.plan.plan import NO_WORKERS, AheadInThread, Base, Hosted, Lookup, Part, Plan, Stage
from flowdsl.plan.supplied import Supplied
from flowdsl.plan.tree import Step, bases_of, from_positions, only_reads_stream, steps_of, walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.worker_kinds import THREADS, WorkerKind


def plan_of(node: Node[T, Effect]) -> Plan[T]:
    """The plan of a flow: after the rules, every step is in a stage, or hosted by the consumer."""
    top = optimize(steps_of(node))
    lowering = _Lowering(_workers_of(top))
    root = lowering.part(top)
    return Plan(node, root, tuple(lowering.stages))


@any_depth
def _workers_of(step: Step) -> int:
    """The number of workers in the plan of these steps."""
    node = step.node
    if isinstance(node, Copying) and not node.indexable:
        return node.n
    below = sum(map(_workers_of, step.sources))
    if isinstance(node, Placement) and not only_reads_stream(step.sources[0]):
        return node.workers.count + below
    return below


@attrs.define
class _Lowering:
    """Makes the parts of a plan, and numbers its stages."""

    workers: int
    """The number of workers of all stages."""
    stages: list[Stage] = attrs.field(factory=list[Stage])

    @any_depth
    def part(self, step: Step) -> Part:
        """The part that runs a step and all steps below it."""
        node = step.node
        if isinstance(node, Placement):
            return self._placed(step)
        below = step.sources[0] if step.sources else None
        if isinstance(node, Unordered) and below and isinstance(below.node, Placement):
            return Hosted(step, (self._placed(below, ordered=False),))
        if isinstance(node, Copying) and not node.indexable:
            return Hosted(
                step, tuple(self._copy(step.sources[0], node.kind) for _ in range(node.n))
            )
        if _is_without_workers(step):
            return self._stage(step, bases=())
        return Hosted(step, tuple(map(self.part, step.sources)))

    def _placed(self, prefetch: Step, ordered: bool = True) -> Stage | AheadInThread:
        """The part that a prefetch runs ahead."""
        assert isinstance(prefetch.node, Placement)
        (top,), workers = prefetch.sources, prefetch.node.workers
        if only_reads_stream(top):  # no work for workers: a thread here reads the stream ahead
            return AheadInThread(self.part(top), workers)
        by_threads = workers.kind == THREADS
        bases = tuple(map(self._base, bases_of(top, by_threads)))
        return self._stage(top, bases, workers=workers, ordered=ordered)

    def _base(self, step: Step) -> Base:
        """The part of a base: a lookup if its rows are in memory, otherwise a stream."""
        # Workers read random-access flows themselves, unless the rows are in this process's memory.
        return Lookup(step) if _is_without_workers(step) else self.part(step)

    def _copy(self, top: Step, kind: WorkerKind) -> Stage:
        """The stage of a whole copy, in one worker; a prefetch at its top only sets the limits."""
        limits = top.node.workers if isinstance(top.node, Placement) else NO_WORKERS
        workers = attrs.evolve(limits, kind=kind, count=1)
        return self._stage(top, bases=(), workers=workers, end_to_end=True)

    def _stage(self, top: Step, bases: tuple[Base, ...], **options: Any) -> Stage:
        program = _program(top, {id(base.top): slot for slot, base in enumerate(bases)})
        number = len(self.stages)
        stage = Stage(number, top, program, bases, together=self.workers, **options)
        self.stages.append(stage)
        return stage


def _is_without_workers(step: Step) -> bool:
    """Return True if the consumer's thread runs a random-access flow as a stage of its own."""
    return from_positions(step.node) and not any(isinstance(s.node, Placement) for s in walk(step))


@any_depth
def _program(step: Step, slots: dict[int, int]) -> AnyNode:
    """The program: with ``Supplied`` in place of the bases, and without handlers of failures."""
    if id(step) in slots:
        return Supplied.like(step.node, slots[id(step)])
    node = with_sources(step.node, tuple(_program(source, slots) for source in step.sources))
    return node.silent() if isinstance(node, SkipFailed) else node


def held_above(root: Part, stage: Stage) -> int:
    """The number of a stage's elements that operators above it keep at a time in this process."""
    above = _above(root, stage)
    return 0 if above is None else above.kept


class _Above(NamedTuple):
    """The changes to a stage's elements by the operators from the stage up to some part."""

    size: int
    """The number of the stage's elements in one element of the part."""
    kept: int
    """The number of the stage's elements that the operators keep at a time."""


@any_depth
def _above(part: Base, stage: Stage) -> _Above | None:
    """Return the changes from the stage up to the part; None if the stage is elsewhere."""
    if part is stage:
        return _Above(size=1, kept=0)
    if isinstance(part, Lookup):
        return None
    if isinstance(part, AheadInThread):
        return _above(part.source, stage)
    for source in part.sources if isinstance(part, Hosted) else part.bases:
        if (below := _above(source, stage)) is not None:
            if isinstance(part, Stage):  # elements sent to that stage count in its own limit
                return _Above(size=1, kept=0)
            node = part.top.node
            holds = node.holds if isinstance(node, Buffering) else 0
            elements = node.n if isinstance(node, Windowed) else 1
            return _Above(below.size * elements, below.kept + holds * below.size)
    return None

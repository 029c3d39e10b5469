"""Lowering: from steps to a plan, with its stages and the elements that are sent to them.

Problem: workers need their inputs. The naive way is that the consumer reads rows and sends them,
which limits the speed to one process and copies every row. So rows are read late: over
random-access sources, operators that only choose or reorder are arithmetic on positions. A stage
over such a flow is sent ranges of positions, a few bytes each, and its workers read, map and batch.
Only over a stream, or a list in this process's memory, are elements sent to workers.
"""

from __future__ import annotations

from typing import Any

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
from flowdsl.plan.plan import NO_WORKERS, Ahead, Base, Hosted, Lookup, Part, Plan, Stage
from flowdsl.plan.supplied import Supplied
from flowdsl.plan.tree import Step, bases_of, from_positions, is_read_alone, steps_of, walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.worker_kinds import WorkerKind


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
    if isinstance(node, Placement) and not is_read_alone(step.sources[0]):
        return node.workers.count + below
    return below


@attrs.define
class _Lowering:
    workers: int
    stages: list[Stage] = attrs.field(factory=list[Stage])

    @any_depth
    def part(self, step: Step) -> Part:
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
        if from_positions(node) and not any(isinstance(s.node, Placement) for s in walk(step)):
            return self._stage(step, ())
        return Hosted(step, tuple(map(self.part, step.sources)))

    def _placed(self, prefetch: Step, ordered: bool = True) -> Stage | Ahead:
        assert isinstance(prefetch.node, Placement)
        (top,), workers = prefetch.sources, prefetch.node.workers
        if is_read_alone(top):
            return Ahead(self.part(top), workers)
        bases = tuple(map(self._base, bases_of(top)))
        return self._stage(top, bases, workers=workers, ordered=ordered)

    def _base(self, step: Step) -> Base:
        """The part of a base: a lookup if it is in memory, otherwise a stream."""
        part = self.part(step)
        if isinstance(part, Stage) and not part.workers.count:
            self.stages.remove(part)
            return Lookup(step)
        return part

    def _copy(self, top: Step, kind: WorkerKind) -> Stage:
        """The stage of a whole copy, in one worker; a prefetch at its top only sets the limits."""
        limits = top.node.workers if isinstance(top.node, Placement) else NO_WORKERS
        workers = attrs.evolve(limits, kind=kind, count=1)
        return self._stage(top, (), workers=workers, end_to_end=True)

    def _stage(self, top: Step, bases: tuple[Base, ...], **how: Any) -> Stage:
        program = _supplied(top, {id(base.top): slot for slot, base in enumerate(bases)})
        stage = Stage(len(self.stages), top, program, bases, together=self.workers, **how)
        self.stages.append(stage)
        return stage


@any_depth
def _supplied(step: Step, slots: dict[int, int]) -> AnyNode:
    """The program: with ``Supplied`` in place of the bases, and without handlers of failures."""
    if id(step) in slots:
        return Supplied.like(step.node, slots[id(step)])
    node = with_sources(step.node, tuple(_supplied(source, slots) for source in step.sources))
    return node.silent() if isinstance(node, SkipFailed) else node


def held_above(root: Part, stage: Stage) -> int:
    """The number of a stage's elements that operators above it keep at a time in this process."""
    return (_held(root, stage) or (1, 0))[1]


@any_depth
def _held(part: Base, stage: Stage) -> tuple[int, int] | None:
    """The number of the stage's elements in one element of the part, and the number kept below."""
    if part is stage:
        return 1, 0
    if isinstance(part, Lookup):
        return None
    if isinstance(part, Ahead):
        return _held(part.source, stage)
    for source in part.sources if isinstance(part, Hosted) else part.bases:
        if (below := _held(source, stage)) is not None:
            if isinstance(part, Stage):
                return 1, 0  # elements sent to that stage count as its elements in flight
            node, (size, kept) = part.top.node, below
            holds = node.holds if isinstance(node, Buffering) else 0
            return size * (node.n if isinstance(node, Windowed) else 1), kept + holds * size
    return None

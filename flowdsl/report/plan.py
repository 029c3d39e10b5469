"""A plan as boxes: what runs together, where, and what goes from one to the next.

Nothing here runs a function of the user's: a plan is read off the chain alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import attrs

from flowdsl.effects import Endless, describe
from flowdsl.kinds import Aside
from flowdsl.node import AnyNode
from flowdsl.plan.lower import Copies, Stage, Supplied, lower
from flowdsl.plan.optimize import optimize
from flowdsl.plan.tree import runs_in_worker
from flowdsl.report.sums import as_one
from flowdsl.statistics.run import RunStatistics, StageStatistics
from flowdsl.worker_kinds import Workers

Sent: TypeAlias = Literal["positions", "elements"]


@attrs.frozen
class Operator:
    """A line in a box."""

    title: str
    note: str
    """The effects and the number of the elements that leave it."""
    depth: int = 0
    """The number of flows that it is inside of, as an argument."""
    stage: int | None = None
    """The number of the stage whose figures it is part of."""


@attrs.frozen
class Box:
    """Operators that run together."""

    where: str
    operators: tuple[Operator, ...]
    sources: tuple[Box, ...] = ()
    """Where its elements come from."""
    receives: Sent | None = None
    """What workers are sent; None for what runs in the consumer's thread."""
    stage: int | None = None
    """The number of the stage, among those of the plan, whose elements leave it."""

    def titles(self) -> dict[int, tuple[str, ...]]:
        """The operators of each stage that begins here or before."""
        found: dict[int, tuple[str, ...]] = {}
        for source in self.sources:
            found |= source.titles()
        for line in self.operators:
            if line.stage is not None:
                found[line.stage] = (*found.get(line.stage, ()), line.title)
        return found


Numbers: TypeAlias = tuple[int, ...]


@attrs.frozen
class Plan:
    """The boxes of a flow, from the last one on, and the stages of a run of it."""

    root: Box
    stages: tuple[Numbers | StageStatistics, ...]
    """In the order of elements: the numbers that a stage has in the statistics of a run, several
    where they are copies of one; or what stands for operators that run with the consumer, which a
    run has no figures of."""

    def over(self, statistics: RunStatistics) -> RunStatistics:
        """The figures of a run, a stage for each of these."""
        numbers = [number for one in self.stages if isinstance(one, tuple) for number in one]
        assert len(numbers) == len(statistics.stages), "these are the figures of another plan"
        titles = self.root.titles()
        hosted = list(statistics.hosted)
        stages: list[StageStatistics] = []
        for k, one in enumerate(self.stages):
            if isinstance(one, tuple):
                seen = as_one([statistics.stages[number] for number in one])
            else:
                own = [cost for cost in hosted if cost.title in one.operators]
                hosted = [cost for cost in hosted if cost not in own]
                seen = attrs.evolve(one, seconds=statistics.seconds, costs=tuple(own))
            stages.append(attrs.evolve(seen, operators=titles.get(k, seen.operators)))
        return attrs.evolve(statistics, stages=tuple(stages))


def plan_of(node: AnyNode) -> Plan:
    """What will run where.

    >>> import flowdsl as fl
    >>> flow = fl.from_range(9).map(abs).prefetch(procs=2).filter(bool)
    >>> plan = plan_of(flow.node)
    >>> [operator.title for operator in plan.root.operators], plan.root.where
    (['filter(bool)'], 'this process')
    >>> [operator.title for operator in plan.root.sources[0].operators]
    ['from_range(9)', 'map(abs)']
    """
    return _Planning().plan(lower(optimize(node)))


@attrs.define
class _Planning:
    stages: list[Numbers | StageStatistics] = attrs.field(factory=list[Numbers | StageStatistics])
    runners: int = 0

    def plan(self, node: AnyNode) -> Plan:
        return Plan(self._box(node), tuple(self.stages))

    def _box(self, node: AnyNode) -> Box:
        if isinstance(node, Stage):
            return self._worked(node) if node.workers.count else self._inline(node)
        if isinstance(node, Copies):
            return self._copied(node)
        if isinstance(node, Aside):  # it says where and how, and does nothing itself
            return self._box(node.source)
        return self._with(node, [self._box(source) for source in node.sources])

    def _stage(self) -> int:
        self.stages.append((self.runners,))
        self.runners += 1
        return len(self.stages) - 1

    def _worked(self, node: Stage) -> Box:
        sources = tuple(
            self._box(base)
            if not isinstance(base, Stage) or base.workers.count
            else Box("this process", tuple(_lines(_own(base), None)))
            for base in node.bases
        )
        number = self._stage()
        return Box(
            str(node.workers) + ("" if node.ordered else ", in any order"),
            tuple(_lines(_own(node), number)),
            sources,
            "elements" if node.bases else "positions",
            number,
        )

    def _inline(self, node: Stage) -> Box:
        number = self._stage()
        lines = tuple(_lines(_own(node), number))
        return Box("this process", lines, stage=number)

    def _copied(self, node: Copies) -> Box:
        n, first = len(node.copies), self.runners
        one = self._box(node.copies[0])
        self.runners = first + n
        assert one.stage is not None
        self.stages[one.stage] = tuple(range(first, first + n))
        one = attrs.evolve(one, where=f"{Workers(count=n)}, a copy each")
        return self._with(node, [one])

    def _with(self, node: AnyNode, below: list[Box]) -> Box:
        """An operator of the consumer's thread, with those below it that run there too."""
        lines: list[Operator] = []
        sources: list[Box] = []
        for k, box in enumerate(below):
            if box.receives is None:
                lines += [attrs.evolve(line, depth=line.depth + (k > 0)) for line in box.operators]
                sources += box.sources
            else:
                sources.append(box)
        stage = self._host(node, lines)
        lines += _lines([(node, 0)], stage)
        return Box("this process", tuple(lines), tuple(sources), None, stage)

    def _host(self, node: AnyNode, below: list[Operator]) -> int:
        """Add an operator to the stage of those that run with the consumer, or begin one."""
        stays = () if runs_in_worker(node) else (node.title,)
        last = self.stages[-1] if self.stages else None
        number = len(self.stages) - 1
        if isinstance(last, StageStatistics) and any(line.stage == number for line in below):
            self.stages[-1] = attrs.evolve(
                last, operators=(*last.operators, node.title), stays=last.stays + stays
            )
            return number
        self.stages.append(StageStatistics((node.title,), 0.0, 0, 0, stays=stays))
        return number + 1


def _own(stage: Stage) -> Iterator[tuple[AnyNode, int]]:
    """The operators of a stage, up to where it is supplied."""
    return ((node, deep) for node, deep in stage.parts if not isinstance(node, Supplied))


def _lines(operators: Iterable[tuple[AnyNode, int]], stage: int | None) -> Iterator[Operator]:
    for node, deep in operators:
        yield Operator(node.title, _note(node), deep, stage)


def _note(node: AnyNode) -> str:
    known = "" if node.length is None or Endless in node.effects else f" · {node.length:,}"
    return describe(node.effects) + known

"""A plan as a diagram of boxes: operators that run together, their workers, and their inputs.

A diagram is derived from the plan alone, without running a user's function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import attrs

from flowdsl.effects import Endless, describe
from flowdsl.elements.specs import UNKNOWN
from flowdsl.nodes import AnyNode, Copying, Identity
from flowdsl.plan.plan import AheadInThread, Base, Hosted, Lookup, Plan, Stage
from flowdsl.plan.tree import Step, runs_in_worker
from flowdsl.report.sums import as_one
from flowdsl.resources.worker_kinds import Workers
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import StageStatistics

Sent: TypeAlias = Literal["positions", "elements"]


@attrs.frozen
class Operator:
    """An operator, as a line in a box."""

    title: str
    note: str
    """The operator's effects, and the number of elements that leave it."""
    depth: int = 0
    """The depth of nesting in flows that are arguments of other operators."""
    entry: int | None = None
    """The index in ``Diagram.entries`` of the figures that include the operator."""
    step: int = 0
    """The operator's number in ``flow.explain()``."""
    yields: str = ""
    """The declared spec of its elements; empty if it is unknown without computing one."""


@attrs.frozen
class Box:
    """Operators that run together, drawn as one box."""

    where: str
    operators: tuple[Operator, ...]
    sources: tuple[Box, ...] = ()
    """The boxes from which this box receives elements."""
    receives: Sent | None = None
    """The kind of data sent to workers; None if the consumer's thread runs the operators."""
    ahead: bool = False
    """True if a separate thread runs it ahead of the boxes above."""
    entry: int | None = None
    """The index in ``Diagram.entries`` of the figures of the elements that leave the box."""

    @property
    def yields(self) -> str:
        """The declared spec of the elements that leave the box; empty if it is unknown."""
        return self.operators[-1].yields

    def by_entry(self) -> dict[int, tuple[Operator, ...]]:
        """Return the operators of each entry in this box and its sources."""
        entries: dict[int, tuple[Operator, ...]] = {}
        for source in self.sources:
            entries |= source.by_entry()
        for line in self.operators:
            if line.entry is not None:
                entries[line.entry] = (*entries.get(line.entry, ()), line)
        return entries


StageNumbers: TypeAlias = tuple[int, ...]


@attrs.frozen
class Diagram:
    """The boxes of a flow, starting from the last, and the entries with figures."""

    root: Box
    entries: tuple[StageNumbers | StageStatistics, ...]
    """The entries, sources first. For a stage, the numbers of its copies in the statistics of a
    run; for operators that the consumer hosts, their statistics, still empty."""

    def arrange(self, statistics: RunStatistics) -> RunStatistics:
        """Return the statistics of a run with one stage for each of ``entries``."""
        numbers = [k for entry in self.entries if isinstance(entry, tuple) for k in entry]
        assert len(numbers) == len(statistics.stages), "these are the figures of another plan"
        operators = self.root.by_entry()
        stages: list[StageStatistics] = []
        for k, entry in enumerate(self.entries):
            lines = operators.get(k, ())
            if isinstance(entry, tuple):
                seen = as_one([statistics.stages[number] for number in entry])
            else:
                steps = {line.step for line in lines}
                own = tuple(cost for cost in statistics.hosted if cost.step in steps)
                seen = attrs.evolve(entry, seconds=statistics.seconds, costs=own)
            titles = tuple(line.title for line in lines) or seen.operators
            stages.append(attrs.evolve(seen, operators=titles))
        return attrs.evolve(statistics, stages=tuple(stages))


def diagram_of(plan: Plan[Any]) -> Diagram:
    """Return the diagram of a plan.

    >>> import flowdsl as fl
    >>> from flowdsl.plan.lower import plan_of
    >>> flow = fl.from_range(9).map(abs).prefetch(procs=2).filter(bool)
    >>> diagram = diagram_of(plan_of(flow.node))
    >>> [operator.title for operator in diagram.root.operators], diagram.root.where
    (['filter(bool)'], 'this process')
    >>> [operator.title for operator in diagram.root.sources[0].operators]
    ['from_range(9)', 'map(abs)']
    """
    return _Drawing().diagram(plan)


@attrs.define
class _Drawing:
    entries: list[StageNumbers | StageStatistics] = attrs.field(
        factory=list[StageNumbers | StageStatistics]
    )

    def diagram(self, plan: Plan[Any]) -> Diagram:
        return Diagram(self._box(plan.root), tuple(self.entries))

    def _box(self, part: Base) -> Box:
        if isinstance(part, Stage):
            return self._worker_box(part) if part.workers.count else self._inline(part)
        if isinstance(part, Lookup):
            return Box("this process", tuple(_lines(part.steps, part.top, None)))
        if isinstance(part, AheadInThread):
            return self._ahead(part.source)
        if isinstance(part.top.node, Copying):
            return self._copied(part)
        if isinstance(
            part.top.node, Identity
        ):  # it sets workers or the order, and computes nothing
            return self._box(part.sources[0])
        return self._thread_box(part.top, [self._box(source) for source in part.sources])

    def _add_entry(self, *numbers: int) -> int:
        self.entries.append(numbers)
        return len(self.entries) - 1

    def _worker_box(self, stage: Stage) -> Box:
        sources = tuple(map(self._ahead, stage.bases))
        entry = self._add_entry(stage.number)
        return Box(
            str(stage.workers) + ("" if stage.ordered else ", in any order"),
            tuple(_lines(stage.steps, stage.top, entry)),
            sources,
            "elements" if stage.bases else "positions",
            entry=entry,
        )

    def _ahead(self, part: Base) -> Box:
        """Return the box of a part; a thread reads it ahead if this process computes it."""
        box = self._box(part)
        if isinstance(part, Lookup) or box.receives is not None:
            return box
        return attrs.evolve(box, where="this process, read ahead", ahead=True)

    def _inline(self, stage: Stage) -> Box:
        entry = self._add_entry(stage.number)
        lines = tuple(_lines(stage.steps, stage.top, entry))
        return Box("this process", lines, entry=entry)

    def _copied(self, part: Hosted) -> Box:
        copies = [copy for copy in part.sources if isinstance(copy, Stage)]
        box = self._worker_box(copies[0])
        self.entries[-1] = tuple(copy.number for copy in copies)
        box = attrs.evolve(box, where=f"{Workers(count=len(copies))}, a copy each")
        return self._thread_box(part.top, [box])

    def _thread_box(self, step: Step, below: list[Box]) -> Box:
        """Return the box of a hosted operator, with the operators below it that are hosted too."""
        lines: list[Operator] = []
        sources: list[Box] = []
        for k, box in enumerate(below):
            if box.receives is None and not box.ahead:
                lines += [attrs.evolve(line, depth=line.depth + (k > 0)) for line in box.operators]
                sources += box.sources
            else:
                sources.append(box)
        entry = self._host(step.node, lines)
        lines += _lines([step], step, entry)
        return Box("this process", tuple(lines), tuple(sources), entry=entry)

    def _host(self, node: AnyNode, below: list[Operator]) -> int:
        """Add an operator of the consumer's thread to the last such entry, or start a new entry."""
        cannot_move = () if runs_in_worker(node) else (node.title,)
        last = self.entries[-1] if self.entries else None
        index = len(self.entries) - 1
        if isinstance(last, StageStatistics) and any(line.entry == index for line in below):
            self.entries[-1] = attrs.evolve(
                last, operators=(*last.operators, node.title), stays=last.stays + cannot_move
            )
            return index
        self.entries.append(StageStatistics((node.title,), 0.0, 0, 0, stays=cannot_move))
        return index + 1


def _lines(steps: Iterable[Step], top: Step, entry: int | None) -> Iterator[Operator]:
    """Yield the lines of a box, each with its depth relative to the box's last operator."""
    for step in steps:
        node, depth = step.node, step.depth - top.depth
        yield Operator(node.title, _note(node), depth, entry, step.number, _declared(node))


def _declared(node: AnyNode) -> str:
    try:
        spec = node.spec(probe=False)
    except Exception:  # of an operator that is half written, or whose input has another spec
        return ""
    return "" if spec == UNKNOWN else str(spec)


def _note(node: AnyNode) -> str:
    known = "" if node.length is None or Endless in node.effects else f" · {node.length:,}"
    return describe(node.effects) + known

"""The costs of a stage's operators: the calls of each, and their seconds."""

from __future__ import annotations

from typing import TypeAlias

from flowdsl.executor.codegen import Path
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import Step
from flowdsl.statistics.stages import OperatorCost

Costs: TypeAlias = dict[Path, tuple[int, float]]
"""The calls and seconds of the operator at each path."""


def add_costs(total: Costs, more: Costs) -> None:
    """Add the costs in ``more`` to ``total``."""
    for path, (calls, seconds) in more.items():
        before = total.get(path, (0, 0.0))
        total[path] = before[0] + calls, before[1] + seconds


def costs_of(stage: Stage, costs: Costs) -> tuple[OperatorCost, ...]:
    """The costs of all operators, sources first."""
    paths = sorted(costs, key=lambda path: (-len(path), path))
    return tuple(cost_of(stage.top.at(path), *costs[path]) for path in paths)


def cost_of(step: Step, calls: int, seconds: float) -> OperatorCost:
    """The cost of one operator."""
    return OperatorCost(step.node.title, calls, seconds, step.number)

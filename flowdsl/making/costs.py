"""What the operators of a stage cost: how often each was called, and the seconds that took."""

from __future__ import annotations

from typing import TypeAlias

from flowdsl.kinds import Aside
from flowdsl.making.loop import Path
from flowdsl.making.program import node_at
from flowdsl.plan.lower import Stage
from flowdsl.statistics.run import OperatorCost

Costs: TypeAlias = dict[Path, tuple[int, float]]
"""Calls and seconds, of the operator at each path."""


def add_costs(total: Costs, more: Costs) -> None:
    """Add to what they have cost before."""
    for path, (calls, seconds) in more.items():
        before = total.get(path, (0, 0.0))
        total[path] = before[0] + calls, before[1] + seconds


def costs_of(stage: Stage, costs: Costs) -> tuple[OperatorCost, ...]:
    """The same by the operators' titles, sources first."""
    return tuple(
        OperatorCost(node_at(stage.meaning, path).title, *costs[path])
        for path in sorted(costs, key=lambda path: (-len(path), path))
    )


def titles(stage: Stage) -> tuple[str, ...]:
    """Of the operators that a stage runs itself."""
    return tuple(node.title for node in stage.operators if not isinstance(node, Aside))

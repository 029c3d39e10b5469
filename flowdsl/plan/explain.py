"""A plan as short numbered text, for people to read and for tests to keep."""

from __future__ import annotations

from flowdsl.effects import Endless, describe
from flowdsl.errors import FlowError, InvalidFlow
from flowdsl.node import AnyNode
from flowdsl.plan.lower import Stage, lower
from flowdsl.plan.optimize import optimize
from flowdsl.plan.tree import walk

_STAGES = ("flow", "rules", "plan")


def explain(node: AnyNode, stage: str = "plan") -> str:
    """What a flow does and promises, at a stage of planning.

    Each line is an operator, with its number in the flow of elements; what leaves it: effects,
    number of elements, spec. Specs that no annotation gives are found by making one element.

    Raises:
        InvalidFlow: ``stage`` is not "flow", "rules" or "plan".
    """
    if stage not in _STAGES:
        raise InvalidFlow(f"explain: stage must be one of {', '.join(_STAGES)}, got {stage!r}")
    if stage == "flow":
        return _table(node)
    if stage == "rules":
        return _table(optimize(node))
    return "\n".join(_stages(lower(optimize(node)), []))


def _table(node: AnyNode) -> str:
    return "\n".join(_lines(list(walk(node)), 1))


def _lines(nodes: list[AnyNode], first: int) -> list[str]:
    cells = [
        (f"{number:>2}", node.title, describe(node.effects), _count(node), _spec(node))
        for number, node in enumerate(nodes, first)
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row[:4], widths, strict=True)), row[4]])
        for row in cells
    ]


def _count(node: AnyNode) -> str:
    if Endless in node.effects:
        return "endless"
    return "length ?" if node.length is None else f"{node.length:,}"


def _spec(node: AnyNode) -> str:
    try:
        return str(node.spec(probe=True))
    except FlowError as error:  # a run will raise it at its place; a plan can be read all the same
        return f"! {error}"


def _stages(node: AnyNode, lines: list[str]) -> list[str]:
    """The stages in the order that elements meet them, each under what runs it."""
    if isinstance(node, Stage):
        inside = list(walk(node.meaning))
        if node.base is not None:
            below = node.base.meaning if isinstance(node.base, Stage) else node.base
            _stages(node.base, lines)
            inside = inside[len(list(walk(below))) :]
        _section(lines, _where(node), inside)
        return lines
    for source in node.sources:
        _stages(source, lines)
    _section(lines, "in this process", [node])
    return lines


def _where(stage: Stage) -> str:
    if not stage.procs:
        return "in this process"
    receives = "positions" if stage.base is None else "elements"
    count = f"{stage.procs} worker process{'es' if stage.procs > 1 else ''}"
    return f"in {count}; {receives} travel there, elements back in order"


def _section(lines: list[str], where: str, nodes: list[AnyNode]) -> None:
    """Add operators under a heading, or to the last section if they run in the same place."""
    heads = [i for i, line in enumerate(lines) if not line[:1].isspace()]
    first = 1 + len(lines) - len(heads)
    if not heads or lines[heads[-1]] != where:
        lines.append(where)
    lines.extend(f"  {line}" for line in _lines(nodes, first))

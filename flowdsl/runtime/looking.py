"""Looking at one element of a flow, without workers."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from flowdsl.errors import InvalidFlow
from flowdsl.kinds import Placement, Unordered
from flowdsl.node import AnyNode, Node, with_sources
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Plan
from flowdsl.plan.tree import walk
from flowdsl.runtime.run import Run

T = TypeVar("T")


def plan_without_workers(node: Node[T, Any]) -> Plan[T]:
    """The plan of a flow for this process alone.

    Raises:
        InvalidFlow: A position does not tell an element of the flow, or a pass cannot be repeated.
    """
    for part in walk(node):
        if isinstance(part, Unordered):
            raise InvalidFlow(
                "at: after prefetch(ordered=False) a position does not tell which element is "
                "meant; give ordered=True to look at elements by position"
            )
    if not node.replayable:
        raise InvalidFlow(
            f"at: {_once(node).title} gives its elements only once, and looking at one would use "
            f"up those before it; put cache() after it"
        )
    return plan_of(cast("Node[T, Any]", _without_workers(node)))


def _without_workers(node: AnyNode) -> AnyNode:
    if isinstance(node, Placement):
        return _without_workers(node.source)
    return with_sources(node, tuple(map(_without_workers, node.sources)))


def _once(node: AnyNode) -> AnyNode:
    """The source for which a pass cannot be repeated."""
    return next((_once(source) for source in node.sources if not source.replayable), node)


def element_at(plan: Plan[T], position: int, epoch: int) -> T:
    """The element at a position of a pass.

    Raises:
        IndexError: The pass has no such position.
    """
    length = plan.node.length
    if position >= 0 and (length is None or position < length):
        with Run(plan, epoch, position) as run:
            for element in run:
                return element
            length = run.position
    known = "fewer" if length is None else length
    raise IndexError(f"at: position {position} is beyond the {known} elements of {plan.node.title}")

"""Looking at one element of a flow, without workers."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from flowdsl.errors import InvalidFlow
from flowdsl.nodes import AnyNode, Node, Placement, Unordered, with_sources
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Plan
from flowdsl.plan.tree import walk
from flowdsl.runtime.run import Run

T = TypeVar("T")


def plan_without_workers(node: Node[T, Any]) -> Plan[T]:
    """The plan of a flow for this process alone.

    Raises:
        InvalidFlow: See ``without_workers``.
    """
    return plan_of(cast("Node[T, Any]", without_workers(node, "at")))


def without_workers(node: AnyNode, asked: str) -> AnyNode:
    """The flow for this process alone; ``asked`` is the method that errors name.

    Raises:
        InvalidFlow: A position does not tell an element of the flow, or a pass cannot be repeated.
    """
    if any(isinstance(part, Unordered) for part in walk(node)):
        raise InvalidFlow(
            f"{asked}: after prefetch(ordered=False) a position does not tell which element is "
            f"meant; give ordered=True to look at elements by position"
        )
    if not node.replayable:
        raise InvalidFlow(
            f"{asked}: {_once(node).title} gives its elements only once, and looking at one would "
            f"use up those before it; if they fit in memory, fl.from_items(flow.collect())"
        )
    return _without_workers(node)


def _without_workers(node: AnyNode) -> AnyNode:
    if isinstance(node, Placement):
        return _without_workers(node.source)
    return with_sources(node, tuple(map(_without_workers, node.sources)))


def _once(node: AnyNode) -> AnyNode:
    """The source for which a pass cannot be repeated."""
    return next((_once(source) for source in node.sources if not source.replayable), node)


def element_at(plan: Plan[T], position: int, epoch: int, asked: str = "at") -> T:
    """The element at a position of a pass; ``asked`` is the method that an error names.

    Raises:
        IndexError: The pass has no such position.
    """
    length = plan.node.length
    if position >= 0 and (length is None or position < length):
        with Run(plan, epoch, position) as run:
            for element in run:
                return element
            length = run.position
    raise beyond(asked, position, length, plan.node)


def beyond(asked: str, position: int, length: int | None, node: AnyNode) -> IndexError:
    """The error that says that a pass over this flow has no such position."""
    known = "fewer" if length is None else length
    return IndexError(
        f"{asked}: position {position} is beyond the {known} elements of {node.title}"
    )

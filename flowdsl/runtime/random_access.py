"""Random access to one element of a flow, without workers."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from flowdsl.errors import InvalidFlow
from flowdsl.nodes import AnyNode, Node, Placement, Unordered, with_sources
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Plan
from flowdsl.plan.tree import walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.runtime.run import Run

T = TypeVar("T")


def plan_without_workers(node: Node[T, Any]) -> Plan[T]:
    """Return the plan of a flow with all its placements removed, so that no workers start.

    Raises:
        InvalidFlow: See ``without_workers``.
    """
    return plan_of(cast("Node[T, Any]", without_workers(node, "at")))


def without_workers(node: AnyNode, method: str) -> AnyNode:
    """Return the flow without its placements; ``method`` is the method that errors name.

    Raises:
        InvalidFlow: Positions do not identify elements of the flow, or a pass cannot be repeated.
    """
    if any(isinstance(part, Unordered) for part in walk(node)):
        raise InvalidFlow(
            f"{method}: after prefetch(ordered=False) a position does not identify an element; "
            f"use ordered=True to look at elements by position"
        )
    if not node.replayable:
        raise InvalidFlow(
            f"{method}: {part_read_once(node).title} yields its elements only once, and reading "
            f"one would use up those before it; if they fit in memory, "
            f"fl.from_items(flow.collect())"
        )
    return without_placements(node)


@any_depth
def without_placements(node: AnyNode) -> AnyNode:
    """Return the flow without its placements, so that no workers start."""
    if isinstance(node, Placement):
        return without_placements(node.source)
    return with_sources(node, tuple(map(without_placements, node.sources)))


@any_depth
def part_read_once(node: AnyNode) -> AnyNode:
    """Return the source over which a pass cannot be repeated."""
    return next((part_read_once(source) for source in node.sources if not source.replayable), node)


def element_at(plan: Plan[T], position: int, epoch: int, method: str = "at") -> T:
    """Return the element at a position of a pass; ``method`` is the method that an error names.

    Raises:
        IndexError: The position is beyond the end of the pass.
    """
    length = plan.node.length
    if position >= 0 and (length is None or position < length):
        with Run(plan, epoch, position) as run:
            for element in run:
                return element
            length = run.position
    raise beyond(method, position, length, plan.node)


def beyond(method: str, position: int, length: int | None, node: AnyNode) -> IndexError:
    """Return the error for a position beyond the end of a pass over this flow."""
    known = "fewer" if length is None else length
    return IndexError(
        f"{method}: position {position} is beyond the {known} elements of {node.title}"
    )

"""prefetch over operators that are prefetched themselves runs them too."""

from __future__ import annotations

from flowdsl.node import AnyNode, Placement, with_sources
from flowdsl.plan.tree import runs_in_worker


def absorb_prefetch(node: AnyNode) -> AnyNode:
    """``x.map(f).prefetch(2).map(g).prefetch(4)`` runs both maps in the four processes.

    A worker has no workers of its own, and an element that goes to one process and back to the
    next pays for the way twice.
    """
    if isinstance(node, Placement) and node.workers.count:
        return with_sources(node, (_without_prefetch(node.source),))
    return node


def _without_prefetch(node: AnyNode) -> AnyNode:
    if isinstance(node, Placement):
        return _without_prefetch(node.source)
    if runs_in_worker(node):
        return with_sources(node, tuple(map(_without_prefetch, node.sources)))
    return node

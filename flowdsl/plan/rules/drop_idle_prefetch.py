"""prefetch without processes, or over what only this process can make, goes."""

from __future__ import annotations

from flowdsl.node import AnyNode, Placement
from flowdsl.plan.tree import base_of, runs_in_worker


def drop_idle_prefetch(node: AnyNode) -> AnyNode:
    """``x.prefetch(procs=0)`` is ``x``; so is a prefetch over a stream, or a list and its order."""
    if isinstance(node, Placement):
        below = node.source
        settled = runs_in_worker(below) or not below.sources  # else the prefetch has yet to sink
        if not node.procs or (settled and base_of(below) is below):
            return below
    return node

"""prefetch without processes, or over what only this process can make, goes."""

from __future__ import annotations

from flowdsl.node import AnyNode, Placement
from flowdsl.plan.tree import has_work


def drop_idle_prefetch(node: AnyNode) -> AnyNode:
    """``x.prefetch(procs=0)`` is ``x``; so is a prefetch over a stream, or a list and its order."""
    if isinstance(node, Placement) and (not node.procs or not has_work(node.source)):
        return node.source
    return node

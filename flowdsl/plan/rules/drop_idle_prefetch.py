"""prefetch without processes, or over what only this process can make, goes."""

from __future__ import annotations

from flowdsl.kinds import Placement
from flowdsl.node import AnyNode
from flowdsl.plan.tree import is_work


def drop_idle_prefetch(node: AnyNode) -> AnyNode:
    """``x.prefetch(procs=0)`` is ``x``; so is a prefetch over a stream, or a list and its order.

    Likewise where all the work below it is another's, unless that is to be absorbed by it.
    """
    if isinstance(node, Placement):
        idle = not isinstance(node.source, Placement) and not _has_own_work(node.source)
        if idle or not node.workers.count:
            return node.source
    return node


def _has_own_work(node: AnyNode) -> bool:
    """Whether there is some down to the next prefetch."""
    if isinstance(node, Placement):
        return False
    return is_work(node) or any(map(_has_own_work, node.sources))

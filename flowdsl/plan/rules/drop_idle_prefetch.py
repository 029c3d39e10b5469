"""prefetch without processes, or over a source that only this process can read, goes."""

from __future__ import annotations

from flowdsl.node import AnyNode, IndexedSource, Placement


def drop_idle_prefetch(node: AnyNode) -> AnyNode:
    """``x.prefetch(procs=0)`` is ``x``; so is a prefetch over a list or a stream by itself."""
    if isinstance(node, Placement):
        below = node.source
        readable = isinstance(below, IndexedSource) and below.portable
        if not node.procs or not (below.sources or readable):
            return below
    return node

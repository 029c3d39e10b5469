"""prefetch sinks below an operator that must see the whole sequence."""

from __future__ import annotations

from flowdsl.node import AnyNode, Placement
from flowdsl.plan.tree import runs_in_worker, with_sources


def sink_prefetch(node: AnyNode) -> AnyNode:
    """``x.filter(f).batch(n).prefetch(p)`` becomes ``x.filter(f).prefetch(p).batch(n)``.

    Where a batch starts depends on how many rows were dropped before it, so it is formed at the
    merge, and the workers run what is below it.
    """
    if isinstance(node, Placement):
        below = node.source
        if not isinstance(below, Placement) and below.sources and not runs_in_worker(below):
            moved = tuple(with_sources(node, (source,)) for source in below.sources)
            return with_sources(below, moved)
    return node

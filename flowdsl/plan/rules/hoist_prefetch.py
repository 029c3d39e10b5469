"""prefetch rises above an operator that only chooses or reorders."""

from __future__ import annotations

from flowdsl.node import AnyNode, Indexing, Placement
from flowdsl.plan.tree import with_sources


def hoist_prefetch(node: AnyNode) -> AnyNode:
    """``x.map(f).prefetch(p).shuffle()`` becomes ``x.map(f).shuffle().prefetch(p)``.

    Over a random-access flow the choice is arithmetic on positions, so the workers make just what
    is chosen, in the order in which it is wanted.
    """
    if isinstance(node, Indexing) and node.indexable:
        below = node.source
        if isinstance(below, Placement):
            return with_sources(below, (with_sources(node, below.sources),))
    return node

"""take(n) over a one-to-one operator chooses first: what is not taken is not computed."""

from __future__ import annotations

from flowdsl.kinds import Elementwise, Indexing
from flowdsl.node import AnyNode, with_sources


def take_before_map(node: AnyNode) -> AnyNode:
    """``x.map(f).take(n)`` becomes ``x.take(n).map(f)``; positions, and so draws, stay the same."""
    if isinstance(node, Indexing) and node.keeps_positions:
        below = node.source
        if isinstance(below, Elementwise) and not below.drops:
            return with_sources(below, (with_sources(node, below.sources),))
    return node

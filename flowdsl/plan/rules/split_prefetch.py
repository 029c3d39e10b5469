"""prefetch on both sides of an operator that must see the whole sequence."""

from __future__ import annotations

from flowdsl.node import AnyNode, Elementwise, Grouping, Placement, with_sources
from flowdsl.plan.tree import bases_of, is_work, rewrite, walk


def split_prefetch(node: AnyNode) -> AnyNode:
    """``x.map(f).shuffle(9).map(g).prefetch(p)`` runs ``f`` in processes too, below the shuffle.

    The work above such an operator needs workers that are fed with what it gives; those below it
    are others.
    """
    if isinstance(node, Placement) and node.workers.count:
        busy = [base for base in bases_of(node.source) if _has_work(base)]
        if busy:
            (base,) = busy  # a stream: what lies in memory has no work
            placed = with_sources(node, (base,))
            return rewrite(node, lambda part: placed if part is base else part)
    return node


def _has_work(base: AnyNode) -> bool:
    """It holds operators that could run in workers, and none that does already."""
    parts = list(walk(base))
    return not any(isinstance(part, Placement) for part in parts) and any(
        isinstance(part, Elementwise | Grouping) and is_work(part) for part in parts
    )

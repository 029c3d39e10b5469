"""prefetch on both sides of an operator that must see the whole sequence."""

from __future__ import annotations

import attrs

from flowdsl.kinds import Elementwise, Grouping, Placement
from flowdsl.node import AnyNode
from flowdsl.plan.tree import bases_of, is_work, rewrite, walk


def split_prefetch(node: AnyNode) -> AnyNode:
    """``x.map(f).shuffle(9).map(g).prefetch(p)`` runs ``f`` in processes too, below the shuffle.

    The work above such an operator needs workers that are fed with what it gives; those below it
    are others, which share its memory.
    """
    if isinstance(node, Placement) and node.workers.count:
        bases = (base for base in bases_of(node.source) if base is not node.source)
        busy = [base for base in bases if _has_work(base)]
        if busy:
            (base,) = busy  # a stream: what lies in memory has no work
            half = node.workers.part_of_memory(2)
            placed = attrs.evolve(node, source=base, workers=half)
            above = attrs.evolve(node, workers=half)
            return rewrite(above, lambda part: placed if part is base else part)
    return node


def _has_work(base: AnyNode) -> bool:
    """It holds operators that could run in workers, and none that does already."""
    parts = list(walk(base))
    return not any(isinstance(part, Placement) for part in parts) and any(
        isinstance(part, Elementwise | Grouping) and is_work(part) for part in parts
    )

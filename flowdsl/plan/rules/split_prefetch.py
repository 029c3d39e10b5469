"""prefetch on both sides of an operator that must see the whole sequence."""

from __future__ import annotations

import attrs

from flowdsl.kinds import Elementwise, Gathering, Placement
from flowdsl.plan.tree import Step, bases_of, is_work, rewrite, walk


def split_prefetch(step: Step) -> Step:
    """``x.map(f).shuffle(9).map(g).prefetch(p)`` runs ``f`` in processes too, below the shuffle.

    The work above such an operator needs workers that are sent its elements; the work below needs
    others. Each get half of the memory.
    """
    node = step.node
    if isinstance(node, Placement) and node.workers.count:
        (below,) = step.sources
        busy = [base for base in bases_of(below) if base is not below and _has_work(base)]
        if busy:
            (base,) = busy  # a stream: bases in memory have no work
            half = node.workers.part_of_memory(2)
            placed = attrs.evolve(step.over(base, workers=half), depth=base.depth)
            above = rewrite(below, lambda part: placed if part is base else part)
            return step.over(above, workers=half)
    return step


def _has_work(base: Step) -> bool:
    """Whether it has operators that could run in workers, and none that does already."""
    parts = list(walk(base))
    return not any(isinstance(part.node, Placement) for part in parts) and any(
        isinstance(part.node, Elementwise | Gathering) and is_work(part) for part in parts
    )

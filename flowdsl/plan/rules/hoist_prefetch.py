"""A prefetch is moved above an operator that only chooses or reorders."""

from __future__ import annotations

import attrs

from flowdsl.nodes import IndexTransform, Joining, Merging, Placement
from flowdsl.plan.tree import Step


def hoist_prefetch(step: Step) -> Step:
    """``x.map(f).prefetch(p).shuffle()`` becomes ``x.map(f).shuffle().prefetch(p)``.

    Over random-access flows the choice is arithmetic on positions, so the workers compute only the
    chosen elements, in their final order. A combination of several flows gets as many workers as
    the flow with the most workers, and the strictest limits.
    """
    if isinstance(step.node, IndexTransform | Merging | Joining) and step.node.indexable:
        placed = [(s, s.node.workers) for s in step.sources if isinstance(s.node, Placement)]
        if placed:
            prefetch, most = max(placed, key=lambda pair: pair[1].count)
            below = (s.sources[0] if isinstance(s.node, Placement) else s for s in step.sources)
            workers = most.within(workers for _, workers in placed)
            hoisted = prefetch.with_sources(step.with_sources(*below), workers=workers)
            return attrs.evolve(hoisted, depth=step.depth)
    return step

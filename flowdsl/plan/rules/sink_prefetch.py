"""prefetch sinks below an operator that must see the whole sequence."""

from __future__ import annotations

import attrs

from flowdsl.kinds import Placement
from flowdsl.node import AnyNode, with_sources
from flowdsl.plan.tree import has_work, runs_in_worker


def sink_prefetch(node: AnyNode) -> AnyNode:
    """``x.filter(f).batch(n).prefetch(p)`` becomes ``x.filter(f).prefetch(p).batch(n)``.

    Where a batch starts depends on how many rows were dropped before it, so it is formed at the
    merge, and the workers run what is below it. Below an operator over several flows, those with
    work share the processes.
    """
    if isinstance(node, Placement):
        below = node.source
        if not isinstance(below, Placement) and below.sources and not runs_in_worker(below):
            busy = list(map(has_work, below.sources))
            share = node.workers.share(sum(busy))
            moved = tuple(
                attrs.evolve(node, source=source, workers=share) if works else source
                for source, works in zip(below.sources, busy, strict=True)
            )
            return with_sources(below, moved)
    return node

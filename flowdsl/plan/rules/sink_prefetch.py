"""A prefetch is moved below an operator that must see the whole sequence."""

from __future__ import annotations

import attrs

from flowdsl.nodes import Placement
from flowdsl.plan.tree import Step, has_work, is_read_alone, runs_in_worker
from flowdsl.resources.any_depth import any_depth


@any_depth
def sink_prefetch(step: Step) -> Step:
    """``x.filter(f).batch(n).prefetch(p)`` becomes ``x.filter(f).prefetch(p).batch(n)``.

    The start of a batch depends on the number of rows that were dropped before it, so the consumer
    forms the batch, and the workers run the operators below it. Below an operator over several
    flows, the flows with work share the processes, and streams are read ahead. Without work the
    prefetch stays.
    """
    if isinstance(step.node, Placement):
        (below,) = step.sources
        placed = isinstance(below.node, Placement)
        if not placed and below.sources and not runs_in_worker(below.node):
            busy = list(map(has_work, below.sources))
            if not any(busy):  # a thread can run all of it ahead
                return step
            share = step.node.workers.share(sum(busy))
            moved = (
                # at once to its place: with one operator a round, long chains would not settle
                sink_prefetch(
                    attrs.evolve(step.with_sources(source, workers=share), depth=source.depth)
                )
                if works or is_read_alone(source)
                else source
                for source, works in zip(below.sources, busy, strict=True)
            )
            return below.with_sources(*moved)
    return step

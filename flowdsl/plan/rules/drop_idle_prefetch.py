"""A prefetch without workers, or without operators to run or a stream to read, is removed."""

from __future__ import annotations

from flowdsl.nodes import Placement
from flowdsl.plan.tree import Step, has_own_work, is_read_alone


def drop_idle_prefetch(step: Step) -> Step:
    """``x.prefetch(procs=0)`` becomes ``x``, and so does a prefetch over a reordered list.

    A prefetch is also removed if all its work belongs to prefetches further down, unless it will
    absorb one directly below. A prefetch over a stream stays: if there is no work for workers, a
    thread reads the stream ahead.
    """
    if isinstance(step.node, Placement):
        (below,) = step.sources
        idle = not (isinstance(below.node, Placement) or has_own_work(below))
        if (idle and not is_read_alone(below)) or not step.node.workers.count:
            return below
    return step

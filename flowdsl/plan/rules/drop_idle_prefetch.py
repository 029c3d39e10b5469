"""A prefetch without workers, or without operators to run or a stream to read, is removed."""

from __future__ import annotations

from flowdsl.nodes import Placement
from flowdsl.plan.tree import Step, has_own_work, only_reads_stream


def drop_idle_prefetch(step: Step) -> Step:
    """``x.prefetch(procs=0)`` becomes ``x``, and so does a prefetch over a reordered list.

    A prefetch is also removed if all its work belongs to prefetches further down, unless it will
    absorb one directly below. A prefetch over a stream stays: if there is no work for workers, a
    thread reads the stream ahead.
    """
    if isinstance(step.node, Placement):
        (below,) = step.sources
        has_work = has_own_work(below) or only_reads_stream(below)
        absorbs = isinstance(below.node, Placement)
        if not step.node.workers.count or not (has_work or absorbs):
            return below
    return step

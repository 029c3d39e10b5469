"""prefetch without workers, or with nothing for them or to read ahead, is removed."""

from __future__ import annotations

from flowdsl.nodes import Placement
from flowdsl.plan.tree import Step, has_own_work, is_read_alone


def drop_idle_prefetch(step: Step) -> Step:
    """``x.prefetch(procs=0)`` is ``x``; so is a prefetch over a reordered list.

    So is one whose work all belongs to prefetches further down, unless it is to absorb one. One
    over a stream stays: where there is no work for workers, a thread reads the stream ahead.
    """
    if isinstance(step.node, Placement):
        (below,) = step.sources
        idle = not (isinstance(below.node, Placement) or has_own_work(below))
        if (idle and not is_read_alone(below)) or not step.node.workers.count:
            return below
    return step

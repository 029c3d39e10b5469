"""prefetch without processes, or over what only this process can make, goes."""

from __future__ import annotations

from flowdsl.kinds import Placement
from flowdsl.plan.tree import Step, is_work


def drop_idle_prefetch(step: Step) -> Step:
    """``x.prefetch(procs=0)`` is ``x``; so is a prefetch over a stream, or a list and its order.

    Likewise where all the work below it is another's, unless that is to be absorbed by it.
    """
    if isinstance(step.node, Placement):
        (below,) = step.sources
        idle = not isinstance(below.node, Placement) and not _has_own_work(below)
        if idle or not step.node.workers.count:
            return below
    return step


def _has_own_work(step: Step) -> bool:
    """Whether there is some down to the next prefetch."""
    if isinstance(step.node, Placement):
        return False
    return is_work(step) or any(map(_has_own_work, step.sources))

"""prefetch without workers, or over what only this process can make, is removed."""

from __future__ import annotations

from flowdsl.kinds import Placement
from flowdsl.plan.tree import Step, is_work


def drop_idle_prefetch(step: Step) -> Step:
    """``x.prefetch(procs=0)`` is ``x``; so is a prefetch over a stream, or a reordered list.

    So is one whose work all belongs to prefetches further down, unless it is to absorb one.
    """
    if isinstance(step.node, Placement):
        (below,) = step.sources
        idle = not isinstance(below.node, Placement) and not _has_own_work(below)
        if idle or not step.node.workers.count:
            return below
    return step


def _has_own_work(step: Step) -> bool:
    """Whether there is work for workers down to the next prefetch."""
    if isinstance(step.node, Placement):
        return False
    return is_work(step) or any(map(_has_own_work, step.sources))

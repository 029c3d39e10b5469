"""A prefetch absorbs prefetches below it, and runs their operators too."""

from __future__ import annotations

import attrs

from flowdsl.nodes import Placement, Windowed
from flowdsl.plan.tree import Step, runs_in_worker
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.worker_kinds import Workers


def absorb_prefetch(step: Step) -> Step:
    """``x.map(f).prefetch(2).map(g).prefetch(4)`` runs both maps in the four processes.

    A worker has no workers of its own, and an element that passes through two processes is sent
    twice. The strictest limits apply; above a ``batch(32)`` an element may take 32 times as long.
    """
    node = step.node
    if isinstance(node, Placement) and node.workers.count:
        absorbed: list[Workers] = []
        source = _without_prefetch(step.sources[0], 1, absorbed)
        if absorbed:
            return step.with_sources(source, workers=node.workers.within(absorbed))
    return step


@any_depth
def _without_prefetch(step: Step, rows: int, absorbed: list[Workers]) -> Step:
    """Remove the prefetches; ``rows`` of this step's elements form one element at the top."""
    node = step.node
    if isinstance(node, Placement):
        timeout = node.workers.timeout
        absorbed.append(attrs.evolve(node.workers, timeout=timeout and timeout * rows))
        return _without_prefetch(step.sources[0], rows, absorbed)
    if runs_in_worker(node):
        rows *= node.n if isinstance(node, Windowed) else 1
        return step.with_sources(
            *(_without_prefetch(source, rows, absorbed) for source in step.sources)
        )
    return step

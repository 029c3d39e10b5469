"""prefetch over operators that are prefetched themselves runs them too."""

from __future__ import annotations

import attrs

from flowdsl.kinds import Grouping, Placement
from flowdsl.node import AnyNode, with_sources
from flowdsl.plan.tree import runs_in_worker
from flowdsl.worker_kinds import Workers


def absorb_prefetch(node: AnyNode) -> AnyNode:
    """``x.map(f).prefetch(2).map(g).prefetch(4)`` runs both maps in the four processes.

    A worker has no workers of its own, and an element that goes to one process and back to the
    next pays for the way twice. The strictest limits hold; above a ``batch(32)`` an element may
    take 32 times as long.
    """
    if isinstance(node, Placement) and node.workers.count:
        absorbed: list[Workers] = []
        source = _without_prefetch(node.source, 1, absorbed)
        if absorbed:
            return attrs.evolve(node, source=source, workers=node.workers.within(absorbed))
    return node


def _without_prefetch(node: AnyNode, rows: int, absorbed: list[Workers]) -> AnyNode:
    """``rows`` of this node's elements make one of what is run."""
    if isinstance(node, Placement):
        timeout = node.workers.timeout
        absorbed.append(attrs.evolve(node.workers, timeout=timeout and timeout * rows))
        return _without_prefetch(node.source, rows, absorbed)
    if runs_in_worker(node):
        rows *= node.n if isinstance(node, Grouping) else 1
        below = (_without_prefetch(source, rows, absorbed) for source in node.sources)
        return with_sources(node, tuple(below))
    return node

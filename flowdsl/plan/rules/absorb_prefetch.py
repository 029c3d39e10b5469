"""prefetch over operators that are prefetched themselves runs them too."""

from __future__ import annotations

import attrs

from flowdsl.kinds import Placement, Workers
from flowdsl.node import AnyNode, with_sources
from flowdsl.plan.tree import runs_in_worker


def absorb_prefetch(node: AnyNode) -> AnyNode:
    """``x.map(f).prefetch(2).map(g).prefetch(4)`` runs both maps in the four processes.

    A worker has no workers of its own, and an element that goes to one process and back to the
    next pays for the way twice. One with limits of its own for an element keeps its workers: those
    above may make other elements, such as batches.
    """
    if isinstance(node, Placement) and node.workers.count:
        absorbed: list[Workers] = []
        source = _without_prefetch(node.source, node.workers, absorbed)
        if absorbed:
            return attrs.evolve(node, source=source, workers=node.workers.within(absorbed))
    return node


def _without_prefetch(node: AnyNode, above: Workers, absorbed: list[Workers]) -> AnyNode:
    if isinstance(node, Placement):
        if node.workers.count and node.workers.limits not in (above.limits, Workers().limits):
            return node
        absorbed.append(node.workers)
        return _without_prefetch(node.source, above, absorbed)
    if runs_in_worker(node):
        below = (_without_prefetch(source, above, absorbed) for source in node.sources)
        return with_sources(node, tuple(below))
    return node

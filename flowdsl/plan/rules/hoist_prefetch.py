"""prefetch rises above an operator that only chooses or reorders."""

from __future__ import annotations

import attrs

from flowdsl.kinds import Indexing, Joining, Merging, Placement
from flowdsl.node import AnyNode, with_sources


def hoist_prefetch(node: AnyNode) -> AnyNode:
    """``x.map(f).prefetch(p).shuffle()`` becomes ``x.map(f).shuffle().prefetch(p)``.

    Over random-access flows the choice is arithmetic on positions, so the workers make just what
    is chosen, in the order in which it is wanted. Several flows get as many as the one with most,
    and the strictest limits of any.
    """
    if isinstance(node, Indexing | Merging | Joining) and node.indexable:
        placements = [source for source in node.sources if isinstance(source, Placement)]
        workers = [placement.workers for placement in placements]
        if placements:
            most = max(placements, key=lambda placement: placement.workers.count)
            below = (s.source if isinstance(s, Placement) else s for s in node.sources)
            over = with_sources(node, tuple(below))
            return attrs.evolve(most, source=over, workers=most.workers.within(workers))
    return node

"""A prefetch is moved below an operator that must see the whole sequence."""

from __future__ import annotations

import attrs

from flowdsl.nodes import Placement
from flowdsl.plan.tree import Step, has_work, only_reads_stream, runs_in_worker
from flowdsl.resources.any_depth import any_depth


@any_depth
def sink_prefetch(step: Step) -> Step:
    """``x.filter(f).batch(n).prefetch(p)`` becomes ``x.filter(f).prefetch(p).batch(n)``.

    The start of a batch depends on the number of rows that were dropped before it, so the consumer
    forms the batch, and the workers run the operators below it. Below an operator over several
    flows, the flows with work share the processes, and streams are read ahead. Without work the
    prefetch stays, and a thread runs all of it ahead.
    """
    if isinstance(step.node, Placement):
        (below,) = step.sources
        is_prefetch = isinstance(below.node, Placement)
        if not is_prefetch and below.sources and not runs_in_worker(below.node):
            have_work = list(map(has_work, below.sources))
            if not any(have_work):
                return step
            workers = step.node.workers.share(sum(have_work))

            def over(source: Step) -> Step:
                prefetch = step.with_sources(source, workers=workers)
                # To its final place at once: if a rule moved it by one operator in each round,
                # long chains would not settle.
                return sink_prefetch(attrs.evolve(prefetch, depth=source.depth))

            return below.with_sources(
                *(
                    over(source) if works or only_reads_stream(source) else source
                    for source, works in zip(below.sources, have_work, strict=True)
                )
            )
    return step

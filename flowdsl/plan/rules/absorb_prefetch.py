"""A prefetch absorbs prefetches below it, and runs their operators too."""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

from flowdsl.nodes import AnyNode, Placement, Windowed
from flowdsl.plan.tree import Step, runs_in_worker
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.worker_kinds import Workers


def absorb_prefetch(step: Step) -> Step:
    """``x.map(f).prefetch(2).map(g).prefetch(4)`` runs both maps in the four processes.

    A worker has no workers of its own, and an element that passes through two processes is sent
    twice. The strictest limits apply; the ``timeout`` of a prefetch below a ``batch(32)`` counts 32
    times, once for each element of a batch.
    """
    node = step.node
    if isinstance(node, Placement) and node.workers.count:
        absorbed: list[_Absorbed] = []
        source = _without_prefetch(step.sources[0], rows=1, absorbed=absorbed)
        if absorbed:
            return step.with_sources(source, workers=node.workers.within(map(_limits, absorbed)))
    return step


def absorbed_by(step: Step) -> list[AnyNode]:
    """The prefetches that a prefetch absorbs."""
    absorbed: list[_Absorbed] = []
    if isinstance(step.node, Placement) and step.node.workers.count:
        _without_prefetch(step.sources[0], rows=1, absorbed=absorbed)
    return [node for node, _ in absorbed if node.workers.count]


_Absorbed: TypeAlias = tuple[Placement[Any, Any], int]
"""A prefetch, and the number of its elements that form one element of the prefetch above."""


def _limits(absorbed: _Absorbed) -> Workers:
    """The limits of a prefetch, for elements of the prefetch above."""
    node, rows = absorbed
    timeout = node.workers.timeout
    return attrs.evolve(node.workers, timeout=None if timeout is None else timeout * rows)


@any_depth
def _without_prefetch(step: Step, rows: int, absorbed: list[_Absorbed]) -> Step:
    """Remove the prefetches, and add them to ``absorbed``.

    ``rows`` of this step's elements form one element at the top.
    """
    node = step.node
    if isinstance(node, Placement):
        absorbed.append((node, rows))
        return _without_prefetch(step.sources[0], rows, absorbed)
    if runs_in_worker(node):
        rows *= node.n if isinstance(node, Windowed) else 1
        return step.with_sources(
            *(_without_prefetch(source, rows, absorbed) for source in step.sources)
        )
    return step

"""take(n) is moved below a one-to-one operator, so that only the taken elements are computed."""

from __future__ import annotations

from flowdsl.nodes import Elementwise, IndexTransform
from flowdsl.plan.tree import Step


def take_before_map(step: Step) -> Step:
    """``x.map(f).take(n)`` becomes ``x.take(n).map(f)``; positions, and so draws, stay the same."""
    if isinstance(step.node, IndexTransform) and step.node.keeps_positions:
        (below,) = step.sources
        if isinstance(below.node, Elementwise) and not below.node.drops:
            return below.with_sources(step.with_sources(*below.sources))
    return step

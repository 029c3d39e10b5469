"""Probing: settling what no annotation says of an operator's result, by making one element."""

from __future__ import annotations

from typing import get_type_hints

from flowdsl.kinds import Indexing
from flowdsl.node import AnyNode, with_sources
from flowdsl.specs import (
    UNKNOWN,
    Spec,
    is_settled,
    meet,
    spec_of,
    spec_of_type,
    varying_axes,
    without_axes,
)


def spec_of_result(function: object) -> Spec:
    """What a function's return annotation declares; unknown where it has none."""
    try:
        hint = get_type_hints(function, include_extras=True).get("return")
    except Exception:  # an annotation that cannot be evaluated declares nothing
        return UNKNOWN
    return spec_of_type(hint) if hint is not None else UNKNOWN


def probed(node: AnyNode, known: Spec) -> Spec:
    """Settle what is unknown by making the first element, if a pass can be repeated.

    One element does not tell which of its sizes hold for all. An axis that varies in the source, as
    the first one of batches does, is taken to vary in the result where it has the same size.
    """
    if is_settled(known) or not node.replayable:
        return known
    first = next(_unmoved(node).rows(0), None)
    if first is None:
        return known
    seen = spec_of(first[1])
    for source in node.sources:
        row = next(_unmoved(source).rows(0), None)
        if row is None:  # of a stream that was longer the first time
            return known
        seen = without_axes(seen, varying_axes(source.spec(True), spec_of(row[1])))
    return meet(known, seen, f"{node.title}: element 0")


def _unmoved(node: AnyNode) -> AnyNode:
    """The same flow in its source's order: the first element of a shuffle would cost all others.

    Nor does anybody see it go by, or keep it: a probe is no pass.
    """
    if (unseen := node.unseen) is not node:
        return _unmoved(unseen)
    moves = isinstance(node, Indexing) and node.length is not None
    if node.identity or (moves and node.length == node.sources[0].length):
        return _unmoved(node.sources[0])
    return with_sources(node, tuple(map(_unmoved, node.sources)))

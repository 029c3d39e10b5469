"""Probing: compute one element to learn the parts of a spec that no annotation declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import reduce
from typing import Any, TypeAlias, get_type_hints

from flowdsl.effects import Effect
from flowdsl.elements.declared_specs import spec_of_type
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import (
    UNKNOWN,
    Spec,
    is_known,
    join,
    spec_of,
    varying_axes,
    with_sizes,
    without_axes,
    without_sizes,
)
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes.base import AnyNode, PassFactory, Row, with_sources
from flowdsl.nodes.capabilities import SkippedByProbe
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.kinds import IndexTransform, Merging
from flowdsl.resources.any_depth import any_depth


def spec_of_result(function: object) -> Spec:
    """The spec that a function's return annotation declares; unknown without an annotation."""
    try:
        hint = get_type_hints(function, include_extras=True).get("return")
    except Exception:  # an annotation that cannot be evaluated declares nothing
        return UNKNOWN
    return spec_of_type(hint, allow_subclasses=True) if hint is not None else UNKNOWN


def refuse_mismatch(node: AnyNode) -> None:
    """Raise ``InvalidFlow`` if the spec of an operator's source is known not to fit it."""
    try:
        node.spec(probe=False)
    except SpecMismatch as error:
        raise InvalidFlow(f"{node.title}: {error}") from error


MadeOf: TypeAlias = Callable[[Spec, Any], tuple[Spec, Any] | None]
"""Selects what an operator makes its first element of, from the spec and the first element of its
source: for ``unbatch``, the spec and the value of the first row of the batch. None if the operator
does not use the source's first element."""


def _whole_element(spec: Spec, element: Any) -> tuple[Spec, Any]:
    return spec, element


def with_inferred(
    node: AnyNode, known: Spec, probe: bool, made_of: MadeOf = _whole_element
) -> Spec:
    """The known spec of an operator's elements, completed by ``probed`` if a probe is allowed."""
    return probed(node, known, made_of) if probe else known


def probed(node: AnyNode, known: Spec, made_of: MadeOf = _whole_element) -> Spec:
    """Complete a spec by computing the first element, if a pass can be repeated.

    One element does not show which sizes are the same for all elements. If an axis varies in the
    part of the source that ``made_of`` selects, such as the first axis of a batch, an axis of the
    same size in the result is assumed to vary too.
    """
    if is_known(known) or not node.replayable or node.depth > MAX_DEPTH_PROBED:
        return known
    first_of = _first_of.get()
    first = first_of(node)
    if first is None:
        return known
    seen = spec_of(first[0])
    for source in node.sources:
        first_below = first_of(source)
        if first_below is None:  # a stream that had elements only in its first pass
            return known
        used = made_of(source.spec(True), first_below[0])
        if used is None:
            seen = without_sizes(seen)
        else:
            used_spec, used_value = used
            seen = without_axes(seen, varying_axes(used_spec, spec_of(used_value)))
    met = meet(known, seen, f"{node.title}: element 0")
    return with_sizes(met, known) if _for_all_elements.get() else met


FirstOf: TypeAlias = Callable[[AnyNode], tuple[Any] | None]
"""Returns the first element of a flow, as a tuple, or None if it has none."""


def first_in_reference(node: AnyNode) -> tuple[Any] | None:
    """Return the first element of the reference, as a tuple, or None if it has none."""
    row = next(unmoved(node).reference(0), None)
    return None if row is None else (row[1],)


_first_of: ContextVar[FirstOf] = ContextVar("_first_of", default=first_in_reference)


def spec_from_elements(node: AnyNode, first_of: FirstOf) -> Spec:
    """The spec that ``node.spec(True)`` infers from first elements that ``first_of`` returns."""
    token = _first_of.set(first_of)
    try:
        return node.spec(True)
    finally:
        _first_of.reset(token)


MAX_DEPTH_PROBED = 200
"""A probe of an operator computes an element of each operator below it. In a longer chain, this
would take seconds and nest more iterators than Python allows."""

_for_all_elements: ContextVar[bool] = ContextVar("_for_all_elements", default=False)
"""True in ``spec_for_all_elements``: ``probed`` then keeps declared sizes only, since the sizes of
other elements may differ from those of the first."""


def spec_for_all_elements(node: AnyNode, sources: tuple[Spec, ...]) -> Spec:
    """The spec of all elements of a node, from the specs of all elements of its sources.

    Dtypes and structure may come from one element, as in ``node.spec(True)``; sizes do not.
    """
    if not sources:
        return with_sizes(node.spec(True), node.spec(False))
    if isinstance(node, Merging) or _yields_its_source(node):
        return reduce(join, sources)
    known_sources = tuple(map(_Known, node.sources, sources))
    token = _for_all_elements.set(True)
    try:
        return with_sources(node, known_sources).spec(True)
    finally:
        _for_all_elements.reset(token)


@frozen_node
class _Known(SkippedByProbe[Any, Effect]):
    """A flow whose spec is known and not probed."""

    source: AnyNode
    known: Spec

    @property
    def title(self) -> str:
        return self.source.title

    @property
    def length(self) -> int | None:
        return self.source.length

    @property
    def indexable(self) -> bool:
        return self.source.indexable

    def spec(self, probe: bool) -> Spec:
        return self.known

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return sources[0](epoch)


def _yields_its_source(node: AnyNode) -> bool:
    return isinstance(node, SkippedByProbe) and any(
        node.node_to_probe is source for source in node.sources
    )


@any_depth
def without_side_effects(node: AnyNode) -> AnyNode:
    """The flow without operators that report, keep or send elements, as a probe is not a pass."""
    if isinstance(node, SkippedByProbe) and (node_to_probe := node.node_to_probe) is not node:
        return without_side_effects(node_to_probe)
    return with_sources(node, tuple(map(without_side_effects, node.sources)))


@any_depth
def unmoved(node: AnyNode) -> AnyNode:
    """The flow without operators that only reorder: a shuffle may read all elements for its first.

    Operators that report, keep or send elements are left out too.
    """
    if isinstance(node, SkippedByProbe) and (node_to_probe := node.node_to_probe) is not node:
        return unmoved(node_to_probe)
    moves = isinstance(node, IndexTransform) and node.length is not None
    if moves and node.length == node.sources[0].length:
        return unmoved(node.sources[0])
    return with_sources(node, tuple(map(unmoved, node.sources)))

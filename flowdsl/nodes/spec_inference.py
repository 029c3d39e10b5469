"""Probing: making one element to settle what no annotation says of an operator's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import reduce
from typing import Any, TypeAlias, get_type_hints

import attrs

from flowdsl.effects import Effect
from flowdsl.elements.specs import (
    UNKNOWN,
    Spec,
    is_settled,
    join,
    meet,
    spec_of,
    spec_of_type,
    varying_axes,
    with_sizes,
    without_axes,
)
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes.base import AnyNode, PassFactory, Row, with_sources
from flowdsl.nodes.capabilities import Transparent
from flowdsl.nodes.kinds import IndexTransform, Merging


def spec_of_result(function: object) -> Spec:
    """What a function's return annotation declares; unknown where it has none."""
    try:
        hint = get_type_hints(function, include_extras=True).get("return")
    except Exception:  # an annotation that cannot be evaluated declares nothing
        return UNKNOWN
    return spec_of_type(hint, exact=False) if hint is not None else UNKNOWN


def refuse_mismatch(node: AnyNode) -> None:
    """Raise ``InvalidFlow`` for an operator whose source is known not to fit it."""
    try:
        node.spec(probe=False)
    except SpecMismatch as error:
        raise InvalidFlow(f"{node.title}: {error}") from error


MadeOf: TypeAlias = Callable[[Spec, Any], tuple[Spec, Any] | None]
"""Of a source's spec and first element, the spec and the value of what a first result is made of;
None if it is not made of that element."""


def _all(spec: Spec, element: Any) -> tuple[Spec, Any]:
    return spec, element


def with_inferred(node: AnyNode, known: Spec, probe: bool, made_of: MadeOf = _all) -> Spec:
    """What is known of an operator's elements, settled by ``probed`` if a probe is allowed."""
    return probed(node, known, made_of) if probe else known


def probed(node: AnyNode, known: Spec, made_of: MadeOf = _all) -> Spec:
    """Settle what is unknown by making the first element, if a pass can be repeated.

    One element does not show which sizes hold for all. An axis that varies in what it is
    ``made_of``, such as the first of a batch, is assumed to vary in the result if it has the same
    size there.
    """
    if is_settled(known) or not node.replayable:
        return known
    first = next(_unmoved(node).reference(0), None)
    if first is None:
        return known
    seen = spec_of(first[1])
    for source in node.sources:
        row = next(_unmoved(source).reference(0), None)
        if row is None:  # a stream that was longer the first time
            return known
        made = made_of(source.spec(True), row[1])
        if made is None:
            seen = with_sizes(seen, UNKNOWN)
        else:
            seen = without_axes(seen, varying_axes(made[0], spec_of(made[1])))
    met = meet(known, seen, f"{node.title}: element 0")
    return with_sizes(met, known) if _of_all.get() else met


_of_all: ContextVar[bool] = ContextVar("_of_all", default=False)
"""Whether a probe leaves sizes open that it knows only of the first element."""


def spec_of_all(node: AnyNode, sources: tuple[Spec, ...]) -> Spec:
    """What is known of all elements, given what is known of all elements of each source.

    Dtypes and forms may come from one element, as in ``node.spec(True)``; sizes do not.
    """
    if not sources:
        return with_sizes(node.spec(True), node.spec(False))
    if isinstance(node, Merging) or _gives_its_source(node):
        return reduce(join, sources)
    over = tuple(_Known(*one) for one in zip(node.sources, sources, strict=True))
    token = _of_all.set(True)
    try:
        return with_sources(node, over).spec(True)
    finally:
        _of_all.reset(token)


@attrs.frozen(eq=False)
class _Known(Transparent[Any, Effect]):
    """A flow with a given spec of its elements."""

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


def _gives_its_source(node: AnyNode) -> bool:
    return isinstance(node, Transparent) and any(node.unseen is one for one in node.sources)


def _unmoved(node: AnyNode) -> AnyNode:
    """The flow in its source's order: the first element of a shuffle would cost all others.

    Operators that report or keep elements are skipped too: a probe is no pass.
    """
    if isinstance(node, Transparent) and (unseen := node.unseen) is not node:
        return _unmoved(unseen)
    moves = isinstance(node, IndexTransform) and node.length is not None
    if moves and node.length == node.sources[0].length:
        return _unmoved(node.sources[0])
    return with_sources(node, tuple(map(_unmoved, node.sources)))

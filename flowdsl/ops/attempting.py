"""on_error: leave out elements that fail, and report them. See ``flowdsl.nodes.failures``.

``leave_out`` wraps the elementwise operators of a flow in attempts, from the top down to the
sources, and puts a ``SkipFailed`` below the first operator that looks into elements, such as a
batch. It is put as high as possible: below it, failures keep their positions, so that the flow
below can still be read by index.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal, TypeAlias

import attrs

from flowdsl.errors import ElementError, InvalidFlow
from flowdsl.nodes import (
    AnyNode,
    Elementwise,
    Identity,
    IndexedMap,
    IndexedSource,
    IndexTransform,
    Joining,
    Merging,
    name_of,
    with_sources,
)
from flowdsl.nodes.failures import (
    Attempt,
    AttemptToCount,
    AttemptToFilter,
    AttemptToRead,
    AttemptToReadHere,
    Handler,
    SkipFailed,
    WrappedNode,
    attempts,
)
from flowdsl.ops.caching import Cache, Kept
from flowdsl.resources.any_depth import any_depth

OnError: TypeAlias = Literal["raise", "skip"] | Callable[[ElementError], object]
"""The reaction to an element that fails: raise, skip it, or call a function with its error."""


def check_on_error(operator: str, on_error: object) -> None:
    """Raise ``InvalidFlow`` for an invalid ``on_error``."""
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise InvalidFlow(
            f'{operator}: on_error must be "raise", "skip" or a function of the error, '
            f"got {on_error!r}"
        )
    if callable(on_error):
        try:
            inspect.signature(on_error).bind("an ElementError")
        except TypeError as error:
            raise InvalidFlow(
                f"{operator}: on_error must take one argument, the error, but "
                f"{name_of(on_error)} cannot be called with it: {error}"
            ) from None
        except ValueError:  # a builtin without a signature
            pass


def leave_out(node: AnyNode, on_error: OnError) -> AnyNode:
    """Return the flow without the elements on which an operator fails."""
    if on_error == "raise":
        return node
    return _Leaving(None if on_error == "skip" else on_error).with_failures_left_out(node)


@attrs.define(eq=False, repr=False)
class _Leaving:
    """Wraps operators in attempts, and puts ``SkipFailed`` below operators that read elements."""

    handler: Handler | None
    _numbers: Iterator[int] = attrs.field(factory=count, init=False)
    _below: list[AnyNode] = attrs.field(factory=list[AnyNode], init=False)
    """The operators below which a ``SkipFailed`` was put."""
    _kept: dict[int, Kept[Any]] = attrs.field(factory=dict[int, Kept[Any]], init=False)

    def with_failures_left_out(self, node: AnyNode) -> AnyNode:
        """Return the flow without elements that fail, or that kill a worker."""
        left = self._without(node)
        return left if _leaves_out(left) else self._left(left)

    def _without(self, node: AnyNode, above: AnyNode | None = None) -> AnyNode:
        tried = self._attempted(node)
        if not any(attempts(tried)):
            return tried
        if above is not None:
            self._below.append(above)
        return self._left(tried)

    def _left(self, node: AnyNode) -> AnyNode:
        argument = '"skip"' if self.handler is None else name_of(self.handler)
        return SkipFailed(node, self.handler, argument)

    @any_depth
    def _attempted(self, node: AnyNode) -> AnyNode:
        if isinstance(node, SkipFailed):
            return node  # it leaves out the elements that fail below it
        if isinstance(node, IndexedSource):
            kind = AttemptToReadHere if node.in_memory else AttemptToRead
            return kind(WrappedNode(node), next(self._numbers))
        if isinstance(node, Elementwise):
            return _attempt_at(node)(
                self._attempted(node.source), WrappedNode.of(node), next(self._numbers)
            )
        sources = tuple(self._source(node, source) for source in node.sources)
        try:
            over = with_sources(node, sources)
        except InvalidFlow as error:
            raise InvalidFlow(
                f"prefetch: on_error leaves rows out, so their number is not known; {error}"
            ) from None
        if isinstance(over, Cache) and over is not node:  # the original caches other rows
            return attrs.evolve(over, kept=self._kept.setdefault(id(over.kept), Kept()))
        return over

    def _source(self, node: AnyNode, source: AnyNode) -> AnyNode:
        if not isinstance(node, IndexTransform | Merging | Joining | Identity):
            return self._without(source, node)
        before = len(self._below)
        tried = self._attempted(source)
        if isinstance(node, Joining) and len(self._below) > before:
            where = self._below[before].title
            raise InvalidFlow(
                f"prefetch: on_error leaves rows out below {where}, so that {node.title} would "
                f"join elements that do not belong together; put {node.title} below {where}"
            )
        return tried


def _attempt_at(node: Elementwise[Any, Any, Any]) -> type[Attempt[Any, Any]]:
    if isinstance(node, IndexedMap):
        return AttemptToCount
    return AttemptToFilter if node.drops else Attempt


@any_depth
def _leaves_out(node: AnyNode) -> bool:
    return isinstance(node, SkipFailed) or any(map(_leaves_out, node.sources))

"""on_error: leave out elements that fail, and report them. See ``flowdsl.nodes.failures``.

``leave_out`` wraps the elementwise operators of a flow in attempts, from the top down to the
sources. It puts a ``SkipFailed`` as high as possible, at the latest below an operator that looks
into elements, such as a batch. Below the ``SkipFailed``, failures keep the positions of their
elements, so this part of the flow can still be read by index.
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
    return _FailureSkipping(None if on_error == "skip" else on_error).applied_to(node)


@attrs.define(eq=False, repr=False)
class _FailureSkipping:
    """Wraps operators in attempts, and puts ``SkipFailed`` below operators that read elements."""

    handler: Handler | None
    _numbers: Iterator[int] = attrs.field(factory=count, init=False)
    """The numbers for the attempts."""
    _skipped_below: list[AnyNode] = attrs.field(factory=list[AnyNode], init=False)
    """The operators below which a ``SkipFailed`` was put."""
    _kept: dict[int, Kept[Any]] = attrs.field(factory=dict[int, Kept[Any]], init=False)
    """The new contents of each cache, by the id of its old contents."""

    def applied_to(self, node: AnyNode) -> AnyNode:
        """Return the flow without elements that fail, or that kill a worker."""
        flow = self._attempted_and_skipped(node)
        # Also if no operator can fail: an element that kills a worker becomes a failure.
        return flow if _has_skip_failed(flow) else self._skipped(flow)

    def _attempted_and_skipped(self, node: AnyNode, above: AnyNode | None = None) -> AnyNode:
        """Return a flow without failures; ``above`` is the operator that reads it."""
        attempted = self._attempted(node)
        if not attempts(attempted):
            return attempted
        if above is not None:
            self._skipped_below.append(above)
        return self._skipped(attempted)

    def _skipped(self, node: AnyNode) -> AnyNode:
        """Put a ``SkipFailed`` above a flow."""
        argument = '"skip"' if self.handler is None else name_of(self.handler)
        return SkipFailed(node, self.handler, argument)

    @any_depth
    def _attempted(self, node: AnyNode) -> AnyNode:
        """Return a flow whose elements may be failures."""
        if isinstance(node, SkipFailed):
            return node  # it leaves out the elements that fail below it
        if isinstance(node, IndexedSource):
            kind = AttemptToReadHere if node.in_memory else AttemptToRead
            return kind(WrappedNode(node), next(self._numbers))
        if isinstance(node, Elementwise):
            return _attempt_class(node)(
                self._attempted(node.source), WrappedNode.of(node), next(self._numbers)
            )
        sources = tuple(self._source_for(node, source) for source in node.sources)
        try:
            changed = with_sources(node, sources)
        except InvalidFlow as error:
            raise InvalidFlow(
                f"prefetch: on_error leaves rows out, so their number is not known; {error}"
            ) from None
        if isinstance(changed, Cache) and changed is not node:  # the original caches other rows
            return attrs.evolve(changed, kept=self._kept.setdefault(id(changed.kept), Kept()))
        return changed

    def _source_for(self, node: AnyNode, source: AnyNode) -> AnyNode:
        """Return what an operator reads in place of its source: failures only if it moves them."""
        if not isinstance(node, IndexTransform | Merging | Joining | Identity):
            return self._attempted_and_skipped(source, node)
        before = len(self._skipped_below)
        attempted = self._attempted(source)
        if isinstance(node, Joining) and len(self._skipped_below) > before:
            where = self._skipped_below[before].title
            raise InvalidFlow(
                f"prefetch: on_error leaves rows out below {where}, so that {node.title} would "
                f"join elements that do not belong together; put {node.title} below {where}"
            )
        return attempted


def _attempt_class(node: Elementwise[Any, Any, Any]) -> type[Attempt[Any, Any]]:
    if isinstance(node, IndexedMap):
        return AttemptToCount
    return AttemptToFilter if node.drops else Attempt


@any_depth
def _has_skip_failed(node: AnyNode) -> bool:
    return isinstance(node, SkipFailed) or any(map(_has_skip_failed, node.sources))

"""Datasets that are read in order, in the consumer's process, from the beginning in each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, cast

import attrs

from flowdsl.effects import Endless, Exact, Reordered, Unsized
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import FlowError, SourceError
from flowdsl.nodes import (
    AnyOrder,
    E,
    Node,
    PassFactory,
    Row,
    T,
    cached_per_node,
    flow,
    frozen_node,
    with_inferred,
)
from flowdsl.ops.iterables import Opened, numbered

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@frozen_node
class _Stream(Node[T, E], Generic[T, E]):
    """The elements of a dataset, in its order."""

    size_text: ClassVar[str]
    """The text for the number of elements in titles."""

    operator: str
    dataset: Any = attrs.field(eq=id)
    begin: Callable[[Any], Iterable[T]]
    """Begins a pass over the dataset."""
    known: Spec
    count: int | None

    @property
    def title(self) -> str:
        size = self.size_text.format(self.count)
        return f"{self.operator}({type(self.dataset).__name__}, {size})"

    @property
    def fingerprint(self) -> str:
        return self.title if self.known == UNKNOWN else f"{self.title} {self.known}"

    @property
    def length(self) -> int | None:
        return self.count

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, self.known, probe)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        count = 0
        with closing(cast("Any", numbered(self, partial(self._open, epoch), epoch))) as rows:
            for position, x in rows:
                if count == self.count:
                    raise self._miscounted("more")
                count += 1
                yield position, x
                del x  # do not keep an element alive while the next is computed
        if Endless in self.adds or (self.count is not None and count < self.count):
            raise self._miscounted(f"{count}")

    def _open(self, epoch: int) -> Opened[T]:
        try:
            return Opened(iter(self.begin(self.dataset)), owned=True)
        except FlowError:
            raise
        except Exception as error:
            raise SourceError(
                f"{self.title}: the dataset cannot be read for epoch {epoch}: {error}"
            ) from error

    def _miscounted(self, actual: str) -> SourceError:
        says = "never ends" if self.count is None else f"has {self.count} elements"
        return SourceError(
            f"{self.title}: the dataset says that it {says}, and a pass gave {actual}"
        )


class CountedStream(_Stream[T, Exact]):
    """A stream of known length."""

    size_text = "{} elements"


class UncountedStream(_Stream[T, Unsized]):
    """A finite stream of unknown length."""

    size_text = "of unknown length"


class UnorderedStream(_Stream[T, Reordered | Unsized], AnyOrder[T, Reordered | Unsized]):
    """A finite stream of unknown length, whose order differs from pass to pass."""

    resume_advice: ClassVar[str] = "; use ordered=True"
    size_text = "of unknown length"


class EndlessStream(_Stream[T, Endless]):
    """An endless stream."""

    size_text = "without end"


ENDLESS = -1
"""The count of an endless dataset."""


def stream(
    operator: str,
    dataset: Any,
    begin: Callable[[Any], Iterable[Any]],
    known: Spec = UNKNOWN,
    count: int | None = None,
    ordered: bool = True,
) -> Flow[Any, Any]:
    """Create a flow of a dataset's elements; ``count`` is their number, None if unknown.

    A dataset that is not ``ordered`` has no known number of elements.
    """
    if not ordered:
        return flow(UnorderedStream[Any](operator, dataset, begin, known, None))
    if count is None:
        return flow(UncountedStream[Any](operator, dataset, begin, known, None))
    if count == ENDLESS:
        return flow(EndlessStream[Any](operator, dataset, begin, known, None))
    return flow(CountedStream[Any](operator, dataset, begin, known, count))

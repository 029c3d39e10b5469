"""Datasets of Grain, which returns None for an element that a filter leaves out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from flowdsl.datasets.foreign import is_a
from flowdsl.datasets.numbered import FromNumbered, length_of
from flowdsl.datasets.streams import stream
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import SourceError, Where
from flowdsl.nodes import E, IndexedMap, cached_per_node, flow, frozen_node, with_inferred
from flowdsl.ops.sources import from_range

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")


@frozen_node
class FromEndlessGrain(IndexedMap[Any, Any, E]):
    """The items of an endlessly repeated dataset, read by position."""

    operator: str
    dataset: Any = attrs.field(eq=id)
    has_filter: bool

    @property
    def title(self) -> str:
        return f"{self.operator}({type(self.dataset).__name__}, without end)"

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return UNKNOWN if self.has_filter else with_inferred(self, known=UNKNOWN, probe=probe)

    def apply(self, x: Any, epoch: int, position: int) -> Any:
        element = self.dataset[position]
        return element if self.has_filter else _not_left_out(element)

    def origin(self, epoch: int, position: int) -> Where:
        # errors name the row of the dataset: only the positions of ``source`` are used
        return Where(f"row {position} of {self.title}")


def flow_of_grain(operator: str, dataset: Any) -> Flow[Any, Any]:
    """Return the elements of a ``MapDataset`` or ``IterDataset``, as ``from_dataset`` documents.

    Raises:
        InvalidFlow: The dataset has no length.
    """
    if is_a(dataset, "grain", "IterDataset"):
        return stream(operator, dataset, iter)
    has_filter = _leaves_elements_out(dataset)
    if length_of(operator, dataset) >= sys.maxsize:  # Grain's length of ``repeat()``
        # The source is only an endless sequence of positions: its elements are ignored.
        positions = from_range(1).repeat()
        endless = flow(FromEndlessGrain(positions.node, operator, dataset, has_filter))
        return endless.filter(not_none) if has_filter else endless
    if has_filter:
        return flow(FromNumbered[Any](operator, dataset, _itself)).filter(not_none)
    return flow(FromNumbered[Any](operator, dataset, _not_left_out))


def is_grain(dataset: object) -> bool:
    """Return True for a dataset of Grain."""
    return is_a(dataset, "grain", "IterDataset") or is_a(dataset, "grain", "MapDataset")


def _leaves_elements_out(dataset: Any) -> bool:
    """Return True if this dataset, or a dataset that it reads, leaves elements out."""
    waiting: list[Any] = [dataset]
    while waiting:  # not recursive, so that a chain can have any depth
        current = waiting.pop()
        if any(cls.__name__ == "FilterMapDataset" for cls in type(current).__mro__):
            return True
        waiting += current.parents
    return False


def not_none(element: object) -> bool:
    """Return True unless Grain left the element out; users see the name of this function."""
    return element is not None


def _itself(element: A) -> A:
    return element


def _not_left_out(element: A) -> A:
    if element is None:
        raise SourceError(
            "the element is None, which Grain uses for elements that are left out, but the dataset "
            "has no filter; add .filter(lambda x: x is not None) to it"
        )
    return element

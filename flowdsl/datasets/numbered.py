"""Datasets with a length and numbered items, which workers read by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, final

import attrs

from flowdsl.datasets.foreign import name_of_class
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.elements.structure import read_only
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import IndexedSource, T, cached_per_node, with_inferred
from flowdsl.ops.sources import Items


@attrs.frozen(eq=False, repr=False)
class FromNumbered(IndexedSource[T], Generic[T]):
    """The items of a dataset; each worker has a copy of the dataset."""

    operator: str
    dataset: Items[Any]
    convert: Callable[[Any], T]
    """Converts an item to an element."""
    count: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "count", length_of(self.operator, self.dataset))

    @property
    def title(self) -> str:
        return f"{self.operator}({type(self.dataset).__name__}, {self.count} items)"

    @property
    def length(self) -> int:
        return self.count

    @final
    def open(self) -> Callable[[int], T]:
        dataset, convert = self.dataset, self.convert
        if len(dataset) != self.count:
            raise SourceError(
                f"{self.operator}: there were {self.count} items when this flow was built, and "
                f"there are {len(dataset)} now; build a new flow of them"
            )
        return lambda i: read_only(convert(dataset[i]))  # it may be the dataset's own memory

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, UNKNOWN, probe)


def length_of(operator: str, dataset: Any) -> int:
    """Return the length of a dataset that is an argument of an operator.

    Raises:
        InvalidFlow: The dataset has no length.
    """
    try:
        return len(dataset)
    except Exception as error:  # whatever the dataset raises
        raise InvalidFlow(
            f"{operator}: dataset must have a length, and {name_of_class(dataset)} has none "
            f"({error}); for one that is only read in order use from_iterable"
        ) from error

"""Datasets with a length and numbered items, which workers read by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Generic, final

import attrs

from flowdsl.datasets.foreign import is_a, name_of_class
from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import IndexedSource, T, cached_per_node, frozen_node, with_inferred
from flowdsl.ops.sources import Items


@frozen_node
class FromNumbered(IndexedSource[T], Generic[T]):
    """The items of a dataset; each worker has a copy of the dataset."""

    operator: str
    dataset: Items[Any] = attrs.field(eq=id)
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

        def read(i: int) -> T:
            item: T = read_only(convert(dataset[i]))  # an array may be the dataset's own memory
            return item

        read_many = getattr(type(dataset), "__getitems__", None)
        if read_many is None or _has_format(dataset):
            return read
        return ManyAtOnce(
            read, lambda numbers: [read_only(convert(x)) for x in read_many(dataset, numbers)]
        )

    @property
    def fingerprint(self) -> str:
        """The title, and the fingerprint of a dataset that has one, such as of Hugging Face."""
        own = getattr(self.dataset, "_fingerprint", None)
        return f"{self.title} {own}" if isinstance(own, str) else self.title

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, UNKNOWN, probe)


def _has_format(dataset: Any) -> bool:
    """Return True for a Hugging Face dataset whose items differ if many are read at once.

    Its formats convert whole columns: a float is float64 alone and float32 among others. A
    transform gets all items that are read.
    """
    while is_a(dataset, "torch.utils.data", "Subset"):
        dataset = dataset.dataset
    return is_a(dataset, "datasets", "Dataset") and dataset.format["type"] is not None


class ManyAtOnce(Generic[T]):
    """Reads single items, or many at once if that is faster.

    A Hugging Face dataset stores columns, and looks up each of them for every item: reading 32
    items at once costs a sixth of reading 32 single items. For an item that takes long, such as an
    image to decode, this gains nothing and delays the first of them. So the first items are read
    alone and timed. If reading many fails, each item is read alone, so that the error names it. All
    items are read alone if ``__getitems__`` returns something else than a list of items, such as
    the columns of a batch.
    """

    def __init__(self, read: Callable[[int], T], read_many: Callable[[list[int]], list[T]]) -> None:
        self._read, self._read_many = read, read_many
        self._expected: list[int] = []
        self._next = 0
        """The index in ``_expected`` of the first item that was not read."""
        self._ready: dict[int, T] = {}
        self._reads_many = True
        self._singles = 0
        """The number of items that were read alone and timed, in ``_seconds``."""
        self._seconds = 0.0
        self._form: object = None
        """The form of the last item that was read alone."""

    def expect(self, numbers: Sequence[int]) -> None:
        """Announce the numbers of the items that are read next, in this order."""
        self._expected, self._next = list(numbers), 0
        self._ready.clear()

    def __call__(self, i: int) -> T:
        if i in self._ready:
            return self._ready.pop(i)
        some = self._expected[self._next : self._next + _AT_ONCE]
        if not self._reads_many or not some or some[0] != i:
            return self._read(i)
        if self._singles < _TIMED_ITEMS or self._seconds > _SLOW_ITEM * self._singles:
            return self._read_timed(i)
        self._next += len(some)
        try:
            rows = self._read_many(some)
        except Exception:  # another one of the items may have failed
            return self._read(i)
        if len(rows) != len(some) or _form_of(rows[0]) != self._form:
            self._reads_many = False  # the dataset returns something else than items
            return self._read(i)
        self._ready = dict(zip(some, rows, strict=True))
        return self._ready.pop(i)

    def _read_timed(self, i: int) -> T:
        self._next += 1
        began = perf_counter()
        item = self._read(i)
        self._singles, self._seconds = self._singles + 1, self._seconds + perf_counter() - began
        self._form = _form_of(item)
        return item


_AT_ONCE = 32
"""The limit on items that are read at once."""
_TIMED_ITEMS = 4
"""The number of items that are first read alone, and timed."""
_SLOW_ITEM = 0.001
"""If a single item takes at least this many seconds, reading many at once gains too little."""


def _form_of(item: object) -> object:
    """Return a value that is equal for items of a dataset, but not for a column of many items."""
    if isinstance(item, dict):
        return dict, frozenset(item)
    return (tuple, len(item)) if isinstance(item, tuple) else type(item)


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

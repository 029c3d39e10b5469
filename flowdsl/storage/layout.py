"""Where the arrays are in encoded elements of one layout.

Problem: the rows of a file mostly have arrays of the same dtypes and shapes, and each row describes
them again. Decoding such a description takes longer than reading a kilobyte. And a row has to be in
memory before its arrays are known, so they are copied to where they are wanted, as to a batch.

The choice: the layout of a row is a guess about the next ones. A row matches if its bytes around
the arrays are the same, up to the items between them, which are decoded. So the arrays need no
description, and they can be read to their places before it is known whether the row matches; if it
does not, it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import SourceError
from flowdsl.storage.codec import array_header, decode
from flowdsl.storage.values import takes_any_bytes

Places: TypeAlias = Mapping[str, NDArray[Any]]
"""Memory for the arrays of a row, by the names of its components."""
NO_PLACES: Places = {}

_LEAST_BYTES = 256
"""Smaller arrays are decoded with the items around them."""
_MOST_ITEMS = 15
"""The most items of an array in MessagePack whose length is in its first byte."""


class StoredArray(NamedTuple):
    """An array in an encoded element, and the name of its component."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Gap(NamedTuple):
    """The bytes before an array, or after the last one: both ends are known, items are between."""

    size: int
    head: bytes
    items: int
    tail: bytes


@attrs.frozen
class Layout:
    """The arrays of encoded elements that have ``size`` bytes, and the bytes around them."""

    form: type
    """The class of the elements: an array, a tuple or a dict."""
    size: int
    arrays: tuple[StoredArray, ...]
    gaps: tuple[Gap, ...]
    """The bytes before each array, and after the last one."""
    known: list[bytes]
    """The gaps of an element without other items."""
    keys: list[str]
    """The keys of a dict, in their order: the names of the arrays' places depend on it."""

    def matches(self, content: bytes, trusted: bool) -> bool:
        """Return True if encoded elements like this one have the layout."""
        gaps: list[bytes] = []
        end = 0
        sizes = [array.dtype.itemsize * prod(array.shape) for array in self.arrays]
        for gap, nbytes in zip(self.gaps, [*sizes, 0], strict=True):
            gaps.append(content[end : end + gap.size])
            end += gap.size + nbytes
        arrays = [np.empty(0)] * len(self.arrays)
        return self.element(gaps, arrays, trusted) is not None

    def element(
        self,
        gaps: Sequence[bytes | bytearray],
        arrays: Sequence[NDArray[Any]],
        trusted: bool = False,
    ) -> Any:
        """Return the element with these arrays and bytes around them; None if it does not match."""
        if self.form is np.ndarray:
            return arrays[0] if gaps == self.known else None
        items: list[Any] = []
        try:
            for data, gap, array in zip(gaps, self.gaps, (*arrays, None), strict=True):
                _, head, count, tail = gap
                if not count:
                    if data != head + tail:
                        return None
                elif data.startswith(head) and data.endswith(tail):
                    between = data[len(head) : len(data) - len(tail)]
                    items += decode(b"%c%b" % (0x90 | count, bytes(between)), trusted)
                else:
                    return None
                items.append(array)
        except (SourceError, TypeError):  # what is between the ends may be anything
            return None
        del items[-1]
        if self.form is tuple:
            return tuple(items)
        keys, values = items[::2], items[1::2]
        return dict(zip(keys, values, strict=True)) if keys == self.keys else None


def layout_of(element: object, data: memoryview, trusted: bool = False) -> Layout | None:
    """Return the layout of an element that was decoded from these bytes; None if it has none.

    It has one if it is an array of numbers or times, or a tuple or dict with such arrays.
    """
    items = _items(element)
    if not any(_is_array(part) for _, part in items) or len(items) > _MOST_ITEMS:
        return None
    content = bytes(data)
    head = content[: _header_bytes(type(element), content)]
    arrays, gaps = list[StoredArray](), list[Gap]()
    begin, after, items_before = 0, len(head), 0
    for k, (name, part) in enumerate(items):
        if _is_array(part):
            tail = array_header(part.dtype, part.shape)
            start = content.find(tail, after) + len(tail)
            if start < after + len(tail):
                return None
            gaps.append(Gap(start - begin, head, k - items_before, tail))
            begin = after = start + part.nbytes
            arrays.append(StoredArray(name, part.dtype, part.shape))
            head, items_before = b"", k + 1
    gaps.append(Gap(len(content) - begin, b"", len(items) - items_before, b""))
    known = [gap.head + gap.tail for gap in gaps]
    keys = list(element) if type(element) is dict else list[str]()
    layout = Layout(type(element), len(content), tuple(arrays), tuple(gaps), known, keys)
    return layout if layout.matches(content, trusted) else None


def _is_array(part: Any) -> bool:
    return type(part) is np.ndarray and part.nbytes >= _LEAST_BYTES and takes_any_bytes(part.dtype)


def _items(element: Any) -> Sequence[tuple[str, Any]]:
    """Return the items that are encoded one after another, with the names of components."""
    if type(element) is np.ndarray:
        return [("", element)]
    if type(element) is tuple:
        return [(str(k), part) for k, part in enumerate(element)]
    if type(element) is dict:
        return [pair for key, part in element.items() for pair in (("", key), (key, part))]
    return []


def _header_bytes(form: type, content: bytes) -> int:
    """Return the size of MessagePack's headers before the first item, of 256 bytes or more."""
    if form is np.ndarray:
        return 0
    return 1 if form is dict else 1 + (4 if content[0] == 0xC8 else 6)

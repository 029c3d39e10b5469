"""The places of the arrays in encoded elements of one layout.

The problem: the rows of a file mostly have arrays of the same dtypes and shapes, and each row
describes them again. Decoding such a description takes longer than reading a kilobyte. And a row
has to be in memory before its arrays are found, so they are copied once more, for example to a
batch.

The choice: the layout of a row is a guess about the next ones. A row matches if the bytes around
its arrays are the same, except for the items between them, which are decoded. So the description of
arrays is not decoded, and arrays are read into the batch before it is known whether the row
matches. A row that does not match is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import SourceError
from flowdsl.storage.codec import array_header, decode
from flowdsl.storage.values import takes_any_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

OutArrays: TypeAlias = Mapping[str, NDArray[Any]]
"""The arrays to read a row into, such as parts of a batch, by the names of its components."""
NO_OUT: OutArrays = {}
Parts: TypeAlias = "list[Buffer]"
"""The bytes of an encoded element: its arrays, and what is around each."""

_LEAST_BYTES = 256
"""Smaller arrays are decoded with the items around them."""
_MOST_ITEMS = 15
"""The most items that an array in MessagePack can have with its length in the first byte."""


class StoredArray(NamedTuple):
    """An array in an encoded element, and the name of its component."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Gap(NamedTuple):
    """The bytes before an array, or after the last one.

    Elements of a layout have the same ``head`` and ``tail`` there, and ``items`` encoded items
    between these.
    """

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
    """The content of each gap, if it has no items."""
    keys: list[str]
    """The keys of a dict, in their order: the arrays are named by it."""

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

    def parts(self, gaps: Sequence[bytearray], out: OutArrays) -> tuple[list[NDArray[Any]], Parts]:
        """Return the arrays and all parts of an element; an array is its place, if that fits."""
        arrays: list[NDArray[Any]] = []
        parts: Parts = [gaps[0]]
        for (name, dtype, shape), gap in zip(self.arrays, gaps[1:], strict=True):
            place = out.get(name)
            if place is None or place.dtype != dtype or place.shape != shape:
                place = np.empty(shape, dtype)
            arrays.append(place)
            parts.append(cast("Buffer", place))  # for NumPy's stubs, from Python 3.12 on
            parts.append(gap)
        return arrays, parts

    def element(
        self,
        gaps: Sequence[bytes | bytearray],
        arrays: Sequence[NDArray[Any]],
        trusted: bool = False,
    ) -> Any:
        """Return the element with these arrays and gaps; None if the gaps do not match."""
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
                    header = 0x90 | count  # of an array of ``count`` items in MessagePack
                    items += decode(b"%c%b" % (header, bytes(between)), trusted)
                else:
                    return None
                items.append(array)
        except (SourceError, TypeError):  # the bytes between head and tail may be anything
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
    """Return the size of MessagePack's headers before the first item."""
    if form is np.ndarray:
        return 0
    if form is dict:
        return 1
    extension = 4 if content[0] == 0xC8 else 6  # its length has 2 bytes, or 4
    return extension + 1  # with the length of the array in it


class _Buffers(NamedTuple):
    """Buffers for rows of one layout, without the arrays."""

    layout: Layout
    before: bytearray
    gaps: list[bytearray]
    after: bytearray


@attrs.define(eq=False)
class InPlace:
    """Reads rows of the layout that was guessed last, with their arrays directly in a batch."""

    frame: Callable[[int], tuple[int, int]]
    """Returns how many bytes a file stores before and after an encoded element of this size."""
    trusted: bool = False
    _size: int = -1
    """The size of stored rows that may have the layout; -1 without a layout."""
    _buffers: _Buffers | None = None
    _misses: int = 0

    def row(
        self,
        size: int,
        out: OutArrays,
        fill: Callable[[bytearray, Parts, bytearray], bool],
    ) -> Any:
        """Return a row of ``size`` stored bytes; None if it has to be read as a whole.

        ``fill`` reads it to buffers: the bytes before the element, its parts, and the bytes after
        it. It returns False if it cannot, or if they are not what was written.
        """
        if size != self._size or not out:
            return None
        layout, before, gaps, after = cast("_Buffers", self._buffers)
        arrays, parts = layout.parts(gaps, out)
        return layout.element(gaps, arrays, self.trusted) if fill(before, parts, after) else None

    def guess(self, row: object, data: memoryview) -> None:
        """Guess that the next rows have the layout of this row, which did not match.

        Guesses are slow, so they become rare: after 1, 2, 4, 8, ... rows that did not match.
        """
        self._misses += 1
        if self._misses & (self._misses - 1):  # not 1, 2, 4, 8, ...
            return
        layout = layout_of(row, data, self.trusted)
        if layout is None:
            self._size, self._buffers = -1, None
            return
        before, after = self.frame(layout.size)
        gaps = [bytearray(gap.size) for gap in layout.gaps]
        self._size = before + layout.size + after
        self._buffers = _Buffers(layout, bytearray(before), gaps, bytearray(after))

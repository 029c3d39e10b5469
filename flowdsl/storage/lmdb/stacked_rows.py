"""Stacked rows of small arrays, taken from the pages of many rows at once.

The problem: reading a row of a kilobyte into a batch takes 6 µs, of which its bytes and its
checksum take half a microsecond. The rest is Python's: to find the row in its page, to compare the
bytes around its arrays, to decode it, to stack it.

The choice: if the file's spec has the dtypes and shapes of all arrays, rows differ only in the
content of their arrays, their keys and their checksums. So all other bytes of many rows are
compared at once, and the arrays are copied out of the pages like rows of a matrix. If anything
differs, rows are read one by one, and a damaged row raises its own error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from flowdsl.elements.preallocated import LEAST_BYTES
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec
from flowdsl.errors import SourceError
from flowdsl.storage.codec import encode
from flowdsl.storage.lmdb.pages import (
    BIG,
    OVERFLOW,
    PAGE_HEADER_BYTES,
    PAGE_KIND,
    Page,
    pages_of,
)
from flowdsl.storage.lmdb.rows import CHECKSUM_BYTES, KEY_DIGITS, RowsFile, key_of, seal
from flowdsl.storage.rows_of_columns import gatherer
from flowdsl.storage.values import takes_any_bytes

Bytes: TypeAlias = NDArray[np.uint8]
Data: TypeAlias = bytes | memoryview
Offsets: TypeAlias = NDArray[np.int64]

_NODE_BYTES = 8
_KEY_END = _NODE_BYTES + KEY_DIGITS
"""The offset of a row's value in its node, or of the number of the first page with the value."""
_READ_BYTES = 1 << 18
"""The bytes of small rows to read at once while they are read in order."""
_MOST_BYTES = 1 << 19
"""The limit on the bytes to read at once."""
_LEAST_PER_BLOCK = 4
"""The least number of rows in a block, on average; fewer are read faster one by one."""
_NONE = np.zeros(0, np.int64)
_TENS = 10 ** np.arange(KEY_DIGITS)[::-1]


class Part(NamedTuple):
    """An array or NumPy scalar of a row: its bytes in a stored row, and what they are."""

    start: int
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@attrs.frozen(eq=False)
class RowForm:
    """The stored bytes of a row without its checksum, which only differ in ``parts``."""

    content: bytes
    """The stored bytes of a row whose arrays are all zeros."""
    encoded_at: int
    """The offset of the encoded row, which the checksum covers."""
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """The size of a stored row, with its checksum."""
        return len(self.content) + CHECKSUM_BYTES

    @property
    def gaps(self) -> Iterator[tuple[int, Bytes]]:
        """The bytes around the parts, each with their offset."""
        starts = [0, *(part.end for part in self.parts)]
        ends = [*(part.start for part in self.parts), len(self.content)]
        for start, end in zip(starts, ends, strict=True):
            if start < end:
                yield start, np.frombuffer(self.content, np.uint8, end - start, start)


def row_form(spec: Spec) -> RowForm | None:
    """Return the form of rows of this spec; None if they may differ in other bytes too."""
    fields = spec.fields if isinstance(spec, StructSpec) else (("", spec),)
    forms = [form for _, part in fields if (form := _array_form(part)) is not None]
    if not fields or len(forms) < len(fields):
        return None
    if sum(dtype.itemsize * prod(shape) for dtype, shape in forms) >= LEAST_BYTES:
        return None  # a batch has these in place
    low, high = (encode(_row(spec, forms, byte)) for byte in (b"\0", b"\xff"))
    if len(low) != len(high):
        return None
    differs = np.flatnonzero(np.frombuffer(low, np.uint8) != np.frombuffer(high, np.uint8))
    content = seal(0, low)[:-CHECKSUM_BYTES]
    encoded_at = len(content) - len(low)
    parts = list[Part]()
    for dtype, shape in forms:
        nbytes = dtype.itemsize * prod(shape)
        own, differs = differs[:nbytes], differs[nbytes:]
        if len(own) < nbytes or own[-1] - own[0] + 1 != nbytes:
            return None
        start = encoded_at + int(own[0])
        parts.append(Part(start, start + nbytes, dtype, shape))
    return RowForm(content, encoded_at, tuple(parts)) if not len(differs) else None


def _array_form(spec: Spec) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return a dtype and shape that any bytes of their size may fill; None if they are unknown."""
    if not isinstance(spec, ArraySpec) or spec.dtype is None or spec.shape is None:
        return None
    shape = tuple(size for size in spec.shape if size)
    is_filled = len(shape) == len(spec.shape) and takes_any_bytes(spec.dtype)
    return (spec.dtype, shape) if is_filled and spec.dtype.isnative else None


def _row(spec: Spec, forms: Sequence[tuple[np.dtype[Any], tuple[int, ...]]], byte: bytes) -> Any:
    """Return a row whose arrays have the same byte everywhere."""
    values = [
        np.frombuffer(byte * (dtype.itemsize * prod(shape)), dtype).reshape(shape)[()]
        for dtype, shape in forms
    ]
    if not isinstance(spec, StructSpec):
        return values[0]
    names = [name for name, _ in spec.fields]
    return dict(zip(names, values, strict=True)) if spec.form is dict else tuple(values)


def open_stacked_rows(
    file: RowsFile, stored: Spec, declared: Spec
) -> Callable[[int, int], Any] | None:
    """Return a reader of stacked rows, as in ``ReadsSpans``; None if rows are read one by one.

    ``stored`` is the spec in the file, ``declared`` has the classes of rows.
    """
    form = row_form(stored) if file.is_current else None
    if form is None:
        return None
    kind, names = "value", [""]
    if isinstance(stored, StructSpec):
        kind = "dict" if stored.form is dict else "tuple"
        names = [name for name, _ in stored.fields]
    if isinstance(declared, StructSpec) and declared.form is dict:  # rows have the stored order
        fields = dict(declared.fields)
        declared = StructSpec(dict, tuple((name, fields[name]) for name in names))
    gathered = gatherer(kind, names, declared)
    if gathered is None:
        return None
    rows = StackedRows(file, form)

    def span(first: int, end: int) -> Any:
        parts = rows(first, end)
        return None if parts is None else gathered(parts)

    return span


class _ReadOneByOne(Exception):
    """These rows have to be read one by one, which raises the error of a damaged row."""


class _Block(NamedTuple):
    """The rows from ``first`` up to ``end``, whose bytes are as expected but for the checksum."""

    first: int
    end: int
    data: Data
    at: Offsets
    """The offset of each stored row in ``data``."""


class _Leaf(NamedTuple):
    """The rows of a leaf from ``first`` on, if their values are on pages of their own."""

    first: int
    pages: Offsets
    """The first page of each value."""


class StackedRows:
    """Reads consecutive rows of one form, stacked; for one thread."""

    def __init__(self, file: RowsFile, form: RowForm) -> None:
        self._file, self._form = file, form
        self._gaps = list(form.gaps)
        self._block = _Block(0, 0, b"", _NONE)
        self._leaf = _Leaf(0, _NONE)
        self._buffer = bytearray()
        """The memory of blocks: allocating it for each of them takes as long as reading."""
        self._failed = False

    def __call__(self, first: int, end: int) -> list[NDArray[Any]] | None:
        """Return the stacked parts of rows; None if they have to be read one by one."""
        if self._failed:
            return None
        try:
            pieces = list(self._pieces(first, end))
        except (SourceError, _ReadOneByOne):
            pieces = []
        if not pieces or len(pieces) * _LEAST_PER_BLOCK > end - first + 2 * _LEAST_PER_BLOCK:
            self._failed = True
            return None
        if len(pieces) == 1:
            return pieces[0]
        return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]

    def _pieces(self, first: int, end: int) -> Iterator[list[NDArray[Any]]]:
        """Yield the stacked parts of the rows in one block, and then of those in the next.

        Raises:
            _ReadOneByOne: A row does not have the expected bytes.
        """
        while first < end:
            block = self._block
            if not block.first <= first < block.end:
                block = self._block = self._read(first, end, in_order=first == block.end)
            stop = min(end, block.end)
            yield self._parts(block, first, stop)
            first = stop

    def _parts(self, block: _Block, first: int, end: int) -> list[NDArray[Any]]:
        form, at = self._form, block.at[first - block.first : end - block.first]
        view, begin, stop = memoryview(block.data), form.encoded_at, len(form.content)
        checksums = [
            xxh3_64_digest(view[start + begin : start + stop], i)
            for i, start in enumerate(at.tolist(), first)
        ]
        stored = _bytes_at(view, at + stop, CHECKSUM_BYTES)
        if (stored.ravel() != np.frombuffer(b"".join(checksums), np.uint8)).any():
            raise _ReadOneByOne("a checksum differs")
        return [
            _bytes_at(view, at + part.start, part.end - part.start)
            .view(part.dtype)
            .reshape(len(at), *part.shape)
            for part in form.parts
        ]

    def _read(self, first: int, end: int, in_order: bool) -> _Block:
        """Read rows from ``first`` on, up to ``end`` or further if rows are read in order."""
        leaf = self._leaf
        if 0 <= first - leaf.first < len(leaf.pages):
            return self._large_rows(leaf, first, end)
        numbers, page = self._file.leaves_from(key_of(first))
        offsets, key = np.array(page.offsets), page.key(0) if len(page) else b""
        slot = first - int(key) if key.isdigit() else -1
        if not 0 <= slot < len(offsets):
            raise _ReadOneByOne("the row is on another page")
        flags, size = page.node(0)[1], self._form.size
        data: Data
        if flags == BIG:
            data, at = page.data, offsets[slot:]
        elif not flags:
            count = -(-(slot + end - first) // len(offsets))
            if in_order:
                count = max(count, _READ_BYTES // len(page.data))
            data, starts = self._leaves(numbers[:count], page)
            at = (starts[:, np.newaxis] + offsets).ravel()[slot:]
        else:
            raise _ReadOneByOne("its value is of another kind")
        head = np.array([size & 0xFFFF, size >> 16, flags, KEY_DIGITS], np.uint16).view(np.uint8)
        nodes = _bytes_at(data, at, _KEY_END)
        is_node = (nodes[:, :_NODE_BYTES] == head).all(1)
        is_node &= (nodes[:, _NODE_BYTES:] == _digits(first, len(at))).all(1)
        at = at[: _leading(is_node)] + _KEY_END
        if not len(at):
            raise _ReadOneByOne("its node has other bytes")
        if flags == BIG:
            self._leaf = _Leaf(first, _bytes_at(data, at, 8).view(np.int64)[:, 0])
            return self._large_rows(self._leaf, first, end)
        return self._block_of(first, data, at)

    def _leaves(self, numbers: Sequence[int], page: Page) -> tuple[Data, Offsets]:
        """Read a leaf, ``page``, and those close behind with rows at the same offsets in them.

        Return where each begins.
        """
        size, near = len(page.data), np.array(numbers) - numbers[0]
        near = near[: _leading((near >= 0) & (near < min(2 * len(near), _MOST_BYTES // size)))]
        data = self._pages(numbers[0], (int(near.max()) + 1) * size)
        known = np.frombuffer(page.data, np.uint8, PAGE_HEADER_BYTES + 2 * len(page))
        is_alike = _are_pages(data, near * size, numbers[0] + near, known[PAGE_KIND:])
        return data, near[: _leading(is_alike)] * size

    def _large_rows(self, leaf: _Leaf, first: int, end: int) -> _Block:
        """Read the values of rows of a leaf up to ``end``, as far as they are consecutive."""
        each = pages_of(self._form.size, self._file.page_size)
        nbytes = each * self._file.page_size
        pages = leaf.pages[first - leaf.first : end - leaf.first][: max(1, _MOST_BYTES // nbytes)]
        near = np.arange(len(pages)) * each
        near = near[: _leading(pages == pages[0] + near)]
        starts = near * self._file.page_size
        data = self._pages(int(pages[0]), len(near) * nbytes)
        known = np.array([OVERFLOW, each & 0xFFFF, each >> 16], np.uint16).view(np.uint8)
        is_value = _are_pages(data, starts, pages[: len(near)], known)
        return self._block_of(first, data, starts[: _leading(is_value)] + PAGE_HEADER_BYTES)

    def _block_of(self, first: int, data: Data, at: Offsets) -> _Block:
        """Return the block of the rows at these offsets, up to one with other bytes."""
        is_row = np.ones(len(at), np.bool_)
        for start, known in self._gaps:
            is_row &= (_bytes_at(data, at + start, len(known)) == known).all(1)
        at = at[: _leading(is_row)]
        if not len(at):
            raise _ReadOneByOne("it has other bytes")
        return _Block(first, first + len(at), data, at)

    def _pages(self, number: int, nbytes: int) -> Data:
        if len(self._buffer) < nbytes:
            self._buffer = bytearray(nbytes)
        return self._file.pages_into(number, memoryview(self._buffer)[:nbytes])


def _bytes_at(data: Data, at: Offsets, width: int) -> Bytes:
    """Return ``width`` bytes from each offset on, as rows.

    Raises:
        _ReadOneByOne: Some of them are beyond the data.
    """
    count = max(0, memoryview(data).nbytes - width + 1)
    windows = np.ndarray((count, width), np.uint8, data, strides=(1, 1))
    try:
        return windows[at]
    except IndexError as error:
        raise _ReadOneByOne("it extends beyond its page") from error


def _are_pages(data: Data, starts: Offsets, numbers: Offsets, known: Bytes) -> NDArray[np.bool_]:
    """Return whether pages have these numbers, and known bytes from their kinds on."""
    heads = _bytes_at(data, starts, PAGE_KIND + len(known))
    is_page: NDArray[np.bool_] = (heads[:, PAGE_KIND:] == known).all(1)
    is_page &= heads[:, :8].view(np.int64)[:, 0] == numbers
    return is_page


def _digits(first: int, count: int) -> Bytes:
    """Return the keys of ``count`` rows from ``first`` on."""
    numbers = np.arange(first, first + count)[:, np.newaxis]
    return (numbers // _TENS % 10 + ord("0")).astype(np.uint8)


def _leading(flags: NDArray[np.bool_]) -> int:
    """Return the number of flags before the first that is False."""
    return len(flags) if flags.all() else int(flags.argmin())

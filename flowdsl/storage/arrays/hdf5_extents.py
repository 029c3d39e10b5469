"""The places of datasets' values in an HDF5 file.

The HDF5 library takes 200 microseconds to read a row, or the chunk that contains it, and does not
check the heaps that hold texts. So rows that are stored as they are in memory are read without the
library, and heaps are checked before it reads them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.storage.arrays.columns import Column, Extent
from flowdsl.storage.values import takes_any_bytes

_CHUNKS_LISTED_PER_READ = 64
"""HDF5 lists the offsets of this many chunks in the time in which it reads one chunk."""


def extents_of(
    h5py: Any, dataset: Any, column: Column, verified: bool, size: int
) -> Callable[[int], Extent | None] | None:
    """Return a function from a row's number to its extent, in a file of ``size`` bytes.

    The function returns None for a row that HDF5 has to read. If HDF5 has to read all rows, because
    they are stored in parts or filtered, None is returned instead of a function. The filter that
    only adds a checksum to a chunk leaves rows as in memory; HDF5 need not check it if rows are
    ``verified`` by checksums of their own.
    """
    creation = dataset.id.get_create_plist()
    filters = [creation.get_filter(k)[0] for k in range(creation.get_nfilters())]
    if (
        not takes_any_bytes(column.dtype)
        or dataset.id.get_type() != h5py.h5t.py_create(column.dtype)
        or dataset.file.userblock_size  # some versions of HDF5 do not add it to offsets
        or filters not in ([], [h5py.h5z.FILTER_FLETCHER32] if verified else [])
    ):
        return None
    length = len(dataset)
    if dataset.chunks is None:
        offset: int | None = dataset.id.get_offset()
        return None if offset is None else lambda _: Extent(0, length, offset)
    rows, *shape = dataset.chunks
    count = -(-length // rows)
    has_whole_rows = tuple(shape) == column.shape and count * rows * column.nbytes <= size
    return _Chunks(dataset, length, rows, count).extent if has_whole_rows else None


@attrs.define(eq=False)
class _Chunks:
    """The chunks of a dataset: ``rows`` rows in each; the last may have fewer."""

    dataset: Any
    length: int
    rows: int
    count: int
    _offsets: NDArray[np.int64] | None = None
    _reads: int = 0

    def extent(self, i: int) -> Extent | None:
        """Return the extent with row ``i``; None if the chunks are not listed yet.

        To find one chunk, HDF5 goes through all of them. So the chunks are listed once, but only
        after reads through HDF5 have taken as long as the listing will.
        """
        if self._offsets is None:
            self._reads += 1
            if self._reads * _CHUNKS_LISTED_PER_READ < self.count:
                return None
            self._offsets = self._listed()
        k = i // self.rows
        offset = int(self._offsets[k])
        first = k * self.rows
        return None if offset < 0 else Extent(first, min(first + self.rows, self.length), offset)

    def _listed(self) -> NDArray[np.int64]:
        """Return the offset of each chunk in the file; -1 for a chunk that is not stored."""
        offsets = np.full(self.count, -1)

        def add(chunk: Any) -> None:
            offsets[chunk.chunk_offset[0] // self.rows] = chunk.byte_offset

        self.dataset.id.chunk_iter(add)
        return offsets


_UNDEFINED = 0  # h5py.h5d.FILL_VALUE_UNDEFINED
_VARIABLE_LENGTH = 9
"""The class of types of variable length."""
_HEAP = b"GCOL\x01"
_HEAP_HEAD = 16
_HEAP_ENTRY = struct.Struct("<HHIQ")
_TEXT_REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("entry", "<u4")])
"""The entry in a dataset for each variable-length text, in files with eight-byte offsets."""


def check_heaps(path: str, dataset: Any) -> None:
    """Check the type of a dataset of variable length, and the sizes of entries in its heaps.

    Neither has a checksum: HDF5 loops forever on a damaged heap, and crashes on a type that is
    neither of text nor of sequences. A chunk that it does not find, as its key is damaged, gets the
    fill value; if that is undefined, HDF5 takes memory that it has not set for addresses.

    Raises:
        ValueError: The type or a heap is damaged, or the fill value is undefined.
    """
    _, _, kind, flags, *_ = dataset.id.get_type().encode()
    if kind & 15 == _VARIABLE_LENGTH and flags & 15 > 1:
        raise ValueError("the type of a dataset is damaged")
    if dataset.id.get_create_plist().fill_value_defined() == _UNDEFINED:
        raise ValueError("its fill value is undefined, which values of variable length need")
    with open(path, "rb") as file:
        data = _Bytes(file)
        parts = _stored_parts(dataset)
        if parts is None:
            _check_all_heaps(data)
            return
        heaps = set[int]()
        for start, size in parts:
            references = data[start : start + size]
            whole = len(references) - len(references) % _TEXT_REFERENCE.itemsize
            found = np.frombuffer(references[:whole], _TEXT_REFERENCE)["heap"]
            heaps.update(np.unique(found).tolist())
        userblock = dataset.file.userblock_size
        for heap in heaps:
            start = userblock + heap
            if data[start : start + len(_HEAP)] == _HEAP:
                _heap_end(data, start)


def _stored_parts(dataset: Any) -> list[tuple[int, int]] | None:
    """Return the offset and size of each part of a dataset in the file.

    Return None for parts that are compressed, or within a header.
    """
    creation = dataset.id.get_create_plist()
    if creation.get_nfilters() or dataset.file.id.get_create_plist().get_sizes()[0] != 8:
        return None
    if dataset.chunks is None:
        start = dataset.id.get_offset()
        return None if start is None else [(start, dataset.id.get_storage_size())]
    parts: list[tuple[int, int]] = []
    dataset.id.chunk_iter(lambda chunk: parts.append((chunk.byte_offset, chunk.size)))
    return parts


class _Bytes:
    """The bytes of a file, read in blocks.

    The file is not mapped: if another program cut it short, a SIGBUS would end this process.
    """

    _BLOCK = 1 << 18

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._start, self._block = 0, b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop = min(part.start, self._size), min(part.stop, self._size)
        if not self._start <= start <= stop <= self._start + len(self._block):
            self._file.seek(start)
            self._start, self._block = start, self._file.read(max(self._BLOCK, stop - start))
        return self._block[start - self._start : stop - self._start]

    def find(self, what: bytes, start: int) -> int:
        while start < self._size:
            block = self[start : start + self._BLOCK]
            if (at := block.find(what)) >= 0:
                return start + at
            if len(block) < len(what):
                break
            start += len(block) - len(what) + 1
        return -1


def _check_all_heaps(data: _Bytes) -> None:
    start = data.find(_HEAP, 0)
    while start >= 0:  # search after each heap: within it, these bytes would be part of a text
        start = data.find(_HEAP, _heap_end(data, start))


def _heap_end(data: _Bytes, start: int) -> int:
    """Walk through the heap that begins at ``start``, and return its end."""
    end = start + int.from_bytes(data[start + 8 : start + _HEAP_HEAD], "little")
    at = start + _HEAP_HEAD
    if not at < end <= len(data):
        raise ValueError(f"the heap at byte {start} is damaged")
    while end - at >= _HEAP_ENTRY.size:
        entry = data[at : at + _HEAP_ENTRY.size]
        if len(entry) < _HEAP_ENTRY.size:
            raise ValueError(f"the file ends within the heap at byte {start}")
        number, _, _, size = _HEAP_ENTRY.unpack(entry)
        # entry 0 is the free space, whose size includes its head; others are padded to 8 bytes
        size = size if number == 0 else _HEAP_ENTRY.size + -(-size // 8) * 8
        if size < _HEAP_ENTRY.size or at + size > end:
            raise ValueError(f"the heap at byte {start} is damaged")
        at += size
    return end

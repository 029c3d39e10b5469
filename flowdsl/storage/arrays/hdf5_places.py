"""Where the values of datasets are in an HDF5 file.

HDF5 takes 200 microseconds to read a row of 100 KB, and has no checks for the heaps of texts. So
rows that are in the file as in memory are read without it, and heaps are checked before it does.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np

from flowdsl.storage.arrays.columns import Column
from flowdsl.storage.values import takes_any_bytes

_LEAST_BYTES = 1 << 12
"""Smaller rows are read many at once, by HDF5."""
_MOST_CHUNKS = 1 << 14
"""The chunks whose places are remembered; finding one takes 15 microseconds."""


def starts_of_rows(
    h5py: Any, dataset: Any, column: Column, verified: bool
) -> Callable[[int], int | None] | None:
    """Return a function from a row's number to where the row begins in the file.

    It returns None for a row that is not stored, whose values are the dataset's fill value. Return
    None if rows are not in one piece, as in memory: if they are small, or filtered. The filter that
    only adds a checksum to a chunk leaves them so; it is not needed if rows are ``verified`` by
    checksums of their own.
    """
    plan, size = dataset.id.get_create_plist(), column.nbytes
    filters = [plan.get_filter(k)[0] for k in range(plan.get_nfilters())]
    if (
        size < _LEAST_BYTES
        or not takes_any_bytes(column.dtype)
        or dataset.id.get_type() != h5py.h5t.py_create(column.dtype)
        or dataset.file.userblock_size  # which some versions of HDF5 leave out of offsets
        or filters not in ([], [h5py.h5z.FILTER_FLETCHER32] if verified else [])
    ):
        return None
    if dataset.chunks is None:
        begin: int | None = dataset.id.get_offset()
        return None if begin is None else lambda i: begin + i * size
    n, *others = dataset.chunks
    if (*others,) != column.shape:
        return None

    @lru_cache(_MOST_CHUNKS)
    def start_of_chunk(k: int) -> int | None:
        place = k * n, *(0 for _ in others)
        start: int | None = dataset.id.get_chunk_info_by_coord(place).byte_offset
        return start

    def start(i: int) -> int | None:
        begin = start_of_chunk(i // n)
        return None if begin is None else begin + i % n * size

    return start


_HEAP = b"GCOL\x01"
_HEAP_HEAD = 16
_HEAP_ENTRY = struct.Struct("<HHIQ")
_TEXT_REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("entry", "<u4")])
"""The entry of a dataset for one variable-length text, in files with eight-byte offsets."""


def check_heaps(path: str, dataset: Any) -> None:
    """Check the sizes of the entries in the heaps that store the dataset's variable-length text.

    Heaps have no checksum, and HDF5 loops forever on a damaged one.

    Raises:
        ValueError: A heap is damaged.
    """
    with open(path, "rb") as file:
        data = _Bytes(file)
        places = _stored_places(dataset)
        if places is None:
            _check_all_heaps(data)
            return
        shift = dataset.file.userblock_size
        heaps = set[int]()
        for start, size in places:
            references = data[start : start + size]
            whole = len(references) - len(references) % _TEXT_REFERENCE.itemsize
            found = np.frombuffer(references[:whole], _TEXT_REFERENCE)["heap"]
            heaps.update(np.unique(found).tolist())
        for heap in heaps:
            if data[heap + shift : heap + shift + len(_HEAP)] == _HEAP:
                _heap_end(data, heap + shift)


def _stored_places(dataset: Any) -> list[tuple[int, int]] | None:
    """Return the offset and size of each part of a dataset in the file.

    Return None for parts that are compressed, or within a header.
    """
    made = dataset.id.get_create_plist()
    if made.get_nfilters() or dataset.file.id.get_create_plist().get_sizes()[0] != 8:
        return None
    if dataset.chunks is None:
        start = dataset.id.get_offset()
        return None if start is None else [(start, dataset.id.get_storage_size())]
    places: list[tuple[int, int]] = []
    dataset.id.chunk_iter(lambda chunk: places.append((chunk.byte_offset, chunk.size)))
    return places


class _Bytes:
    """The bytes of a file.

    They are not mapped: a file that another program cuts short would end this process by a SIGBUS.
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
    while start >= 0:  # skip heaps: in one, these bytes are part of a text
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
        size = size if number == 0 else _HEAP_ENTRY.size + size + -size % 8
        if size < _HEAP_ENTRY.size or at + size > end:
            raise ValueError(f"the heap at byte {start} is damaged")
        at += size
    return end

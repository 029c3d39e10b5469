"""Reading ahead: rows that are read in order are read, or built, many at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

from flowdsl.errors import SourceError
from flowdsl.storage.byte_files import ByteFile

T = TypeVar("T")

_LEAST_BYTES, _MOST_BYTES = 1 << 13, 1 << 22
_GAP_BYTES = 16
"""Rows are in order although a header of this size is between them."""


class ReadAhead:
    """Reads a file with growing read-ahead while it is read in order.

    ``most`` limits the bytes that are read at once, and kept.
    """

    def __init__(self, file: ByteFile, most: int = _MOST_BYTES) -> None:
        self.file, self._most = file, most
        self._latest = (0, b"")
        self._ahead_bytes = 0

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``.

        Raises:
            SourceError: The file ends before them, or they cannot be read.
        """
        begin, data = self._latest  # together: another thread may read other bytes meanwhile
        if not begin <= start <= end <= begin + len(data):
            in_order = begin <= start <= begin + len(data) + _GAP_BYTES
            self._ahead_bytes = (
                min(max(4 * self._ahead_bytes, _LEAST_BYTES), self._most) if in_order else 0
            )
            count = end - start
            if 4 * count <= self._most:  # larger ones are read alone, without a further copy
                count = max(count, self._ahead_bytes)
            begin, data = start, self.file.read(start, count)
            self._latest = begin, data
            if len(data) < end - start:
                raise SourceError(
                    f"{self.file.path!r} ends at byte {start + len(data)}, but rows continued to "
                    f"byte {end} when this flow was built"
                )
        return data[start - begin : end - begin]


def by_number(rows_from: Callable[[int, bool], list[T]]) -> Callable[[int], T]:
    """Return rows by index; ``rows_from`` returns a row and, when reading in order, later ones.

    >>> row = by_number(lambda i, in_order: list(range(i, i + 3 if in_order else i + 1)))
    >>> [row(i) for i in (0, 1, 2, 9)]
    [0, 1, 2, 9]
    """
    return _LatestRows(rows_from).__getitem__  # faster than any Python function


class _LatestRows(dict[int, T]):
    """The rows that were built last, by index."""

    def __init__(self, rows_from: Callable[[int, bool], list[T]]) -> None:
        super().__init__()
        self._rows_from = rows_from
        self._next = 0

    def __missing__(self, i: int) -> T:
        self.clear()
        rows = self._rows_from(i, i == self._next)
        self._next = i + len(rows)
        self.update(zip(count(i), rows, strict=False))
        return rows[0]

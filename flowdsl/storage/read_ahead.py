"""Reading ahead: when rows are read in order, many are built at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

T = TypeVar("T")


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

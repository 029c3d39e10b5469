"""Rows that are read in order, made many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def by_number(some: Callable[[int, bool], list[T]]) -> Callable[[int], T]:
    """Rows by number; ``some`` gives a row and, if they are read in order, rows that follow it.

    >>> row = by_number(lambda i, in_order: list(range(i, i + 3 if in_order else i + 1)))
    >>> [row(i) for i in (0, 1, 2, 9)]
    [0, 1, 2, 9]
    """
    rows: list[T] = []
    first = 0

    def row(i: int) -> T:
        nonlocal rows, first
        k = i - first
        if 0 <= k < len(rows):
            return rows[k]
        in_order, rows = k == len(rows), []
        rows, first = some(i, in_order), i
        return rows[0]

    return row

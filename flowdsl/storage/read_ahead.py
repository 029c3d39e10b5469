"""Rows that are read in order, made many at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

T = TypeVar("T")


def by_number(some: Callable[[int, bool], list[T]]) -> Callable[[int], T]:
    """Rows by number; ``some`` gives a row and, if they are read in order, rows that follow it.

    >>> row = by_number(lambda i, in_order: list(range(i, i + 3 if in_order else i + 1)))
    >>> [row(i) for i in (0, 1, 2, 9)]
    [0, 1, 2, 9]
    """
    return _Made(some).__getitem__  # a look into a dict is faster than any function


class _Made(dict[int, T]):
    """The rows that were made last, by number."""

    def __init__(self, some: Callable[[int, bool], list[T]]) -> None:
        super().__init__()
        self._some = some
        self._next = 0

    def __missing__(self, i: int) -> T:
        self.clear()
        rows = self._some(i, i == self._next)
        self._next = i + len(rows)
        self.update(zip(count(i), rows, strict=False))
        return rows[0]

"""The functions that random chains call; workers import this module, so it imports little.

Each function preserves the marks of an element (see ``elements``), or returns it without marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from flowdsl.testing.elements import ids, make, with_data, with_leaves, without_ids


def make_rows(form: str, first: int, n: int) -> Iterator[Any]:
    """Yield ``n`` rows of a form, beginning with number ``first``."""
    return (make(form, first + i) for i in range(n))


@attrs.frozen
class Damaged:
    """A sequence of rows, one of which cannot be read."""

    rows: list[Any]
    bad: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return fail_if(i == self.bad, self.rows[i])


def damaged(rows: list[Any], bad: int) -> Any:
    """Return a sequence of these rows in which one row cannot be read."""
    return Damaged(rows, bad)


def read_rows(rows: Any) -> Iterator[Any]:
    """Yield the rows as a stream."""
    return (rows[i] for i in range(len(rows)))


def fail_if(bad: bool, element: Any) -> Any:
    """Return the element, or raise an error that names its row."""
    if bad:
        raise ValueError(f"row {ids(element)[0]} is bad")
    return element


def make_from(form: str, first: int, i: int) -> Any:
    """Return the row with number ``first + i``."""
    return make(form, first + i)


def scale(element: Any) -> Any:
    """Return the element with its data scaled."""
    return with_data(element, lambda data: data * 3 + 1)


def noise(element: Any, rng: np.random.Generator) -> Any:
    """Return the element with random data."""
    return with_data(element, lambda data: data + rng.random(data.shape))


def keep(modulus: int, rest: int, element: Any) -> bool:
    """Return True if a filter keeps the element."""
    return sum(ids(element)) % modulus != rest


def fail_on(bad: int, element: Any) -> Any:
    """Return the element, or raise an error if it contains row ``bad``."""
    if bad in ids(element):
        raise ValueError(f"row {bad} is bad")
    return element


def ragged(element: Any) -> Any:
    """Cut the last axis of each array to a length that depends on the element."""
    most = 1 + sum(ids(element)) % 3

    def cut(leaf: Any) -> Any:
        if isinstance(leaf, list) and isinstance(leaf[0], float):
            return leaf[:most]
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and leaf.ndim:
            return leaf[..., :most]
        return leaf

    return with_leaves(element, cut)


def burst(least: int, element: Any) -> Iterator[Any]:
    """Yield the element and some without a row; or nothing, if ``least`` is negative."""
    for k in range(1 + max(-1, sum(ids(element)) % 3 + least)):
        yield without_ids(element) if k else element


def broken_burst(bad: int, element: Any) -> Iterator[Any]:
    """Yield an element without a row, and then the element or an error."""
    yield without_ids(element)
    yield fail_on(bad, element)


def in_one_form(element: Any) -> Any:
    """Return an element of any form as a pair, whose first component has the first row's mark."""
    marks = ids(element)  # ``ids`` finds a row in the number of a pair, as its mark plus one
    return np.int32(marks[0] + 1 if marks else 0), np.array([len(marks)], np.float32)


def renamed(suffix: str, element: Any) -> Any:
    """Return a dict with other names."""
    if not isinstance(element, dict):
        return element
    return {f"{name}{suffix}": value for name, value in element.items()}

"""The functions that random chains call: workers import them by name, so this imports little.

Each leaves the marks in an element alone (``elements``), or makes elements without marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from flowdsl.testing.elements import ids, make, with_data, with_leaves, without_ids


def make_rows(form: str, first: int, n: int) -> Iterator[Any]:
    """``n`` rows of a form, from number ``first`` on."""
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
    """The rows, of which one cannot be read; typed as any sequence."""
    return Damaged(rows, bad)


def read_rows(rows: Any) -> Iterator[Any]:
    """The rows, as a stream."""
    return (rows[i] for i in range(len(rows)))


def fail_if(bad: bool, element: Any) -> Any:
    """The element, or an error that names its row."""
    if bad:
        raise ValueError(f"row {ids(element)[0]} is bad")
    return element


def make_from(form: str, first: int, i: int) -> Any:
    """The row with number ``first + i``."""
    return make(form, first + i)


def scale(element: Any) -> Any:
    """The element with its data scaled."""
    return with_data(element, lambda data: data * 3 + 1)


def noise(element: Any, rng: np.random.Generator) -> Any:
    """The element with random data."""
    return with_data(element, lambda data: data + rng.random(data.shape))


def keep(modulus: int, rest: int, element: Any) -> bool:
    """Whether a filter keeps the element."""
    return sum(ids(element)) % modulus != rest


def fail_on(bad: int, element: Any) -> Any:
    """The element, or an error if a row is in it."""
    if bad in ids(element):
        raise ValueError(f"row {bad} is bad")
    return element


def ragged(element: Any) -> Any:
    """The last axis of each array cut to a length of the element's own."""
    most = 1 + sum(ids(element)) % 3

    def cut(leaf: Any) -> Any:
        if isinstance(leaf, list) and isinstance(leaf[0], float):
            return leaf[:most]
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and leaf.ndim:
            return leaf[..., :most]
        return leaf

    return with_leaves(element, cut)


def burst(least: int, element: Any) -> Iterator[Any]:
    """The element and some without a row; or nothing, where ``least`` is negative."""
    for k in range(1 + max(-1, sum(ids(element)) % 3 + least)):
        yield without_ids(element) if k else element


def broken_burst(bad: int, element: Any) -> Iterator[Any]:
    """An element without a row, and then the element or an error."""
    yield without_ids(element)
    yield fail_on(bad, element)


def in_one_form(element: Any) -> Any:
    """The element as a pair, whatever its form."""
    marks = ids(element)
    return np.int32(marks[0] + 1 if marks else 0), np.array([len(marks)], np.float32)


def renamed(suffix: str, element: Any) -> Any:
    """The dict with other names."""
    if not isinstance(element, dict):
        return element
    return {f"{name}{suffix}": value for name, value in element.items()}

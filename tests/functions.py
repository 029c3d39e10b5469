"""The functions that the laws chain: they travel to workers by name, so this imports little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from tests.elements import formed, ids, leaves, make, with_data, with_leaves, without_ids


def make_rows(form: str, first: int, n: int) -> Iterator[Any]:
    return (make(form, first + i) for i in range(n))


@attrs.frozen
class Damaged:
    """Rows in a sequence, one of which can not be read."""

    rows: list[Any]
    bad: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return fail_if(i == self.bad, self.rows[i])


def damaged(rows: list[Any], bad: int) -> Any:
    return Damaged(rows, bad)


def read_rows(rows: Any) -> Iterator[Any]:
    return (rows[i] for i in range(len(rows)))


def fail_if(bad: bool, element: Any) -> Any:
    if bad:
        raise ValueError(f"row {ids(element)[0]} is bad")
    return element


def make_from(form: str, first: int, i: int) -> Any:
    return make(form, first + i)


def make_of_name(form: str, name: str) -> Any:
    return make(form, int(Path(name).stem))


def make_of_fake(form: str, arrays: Any) -> Any:
    return formed(form, arrays[0][()], arrays[1])


def scale(element: Any) -> Any:
    return with_data(element, lambda data: data * 3 + 1)


def noise(element: Any, rng: np.random.Generator) -> Any:
    return with_data(element, lambda data: data + rng.random(data.shape))


def keep(modulus: int, rest: int, element: Any) -> bool:
    return sum(ids(element)) % modulus != rest


def keep_scaled(modulus: int, rest: int, element: Any) -> Any:
    return scale(element) if keep(modulus, rest, element) else None


def fail_on(bad: int, element: Any) -> Any:
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
    """The element, and some that are of no row; or nothing, where ``least`` is negative."""
    for k in range(1 + max(-1, sum(ids(element)) % 3 + least)):
        yield without_ids(element) if k else element


def broken_burst(bad: int, element: Any) -> Iterator[Any]:
    yield without_ids(element)
    yield fail_on(bad, element)


def unstar(*components: Any) -> Any:
    return tuple(components)


def itself(element: Any) -> Any:
    return element


def count(element: Any) -> int:
    return len(ids(element))


def first_array(element: Any) -> Any:
    arrays = (leaf for leaf in leaves(element) if isinstance(leaf, np.ndarray) and leaf.ndim)
    return next(arrays, np.zeros(len(ids(element))))


def in_one_form(element: Any) -> Any:
    marks = ids(element)
    return np.int32(marks[0] + 1 if marks else 0), np.array([len(marks)], np.float32)


def renamed(suffix: str, element: Any) -> Any:
    if not isinstance(element, dict):
        return element
    return {f"{name}{suffix}": value for name, value in element.items()}


def dict_of(**components: Any) -> Any:
    return components

"""The elements that the laws are tested with: each carries the identity of its source row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl import Record
from flowdsl.elements import components

FORMS = ("tuple", "named", "record", "dict", "array")


class Named(NamedTuple):
    id: np.int64
    data: NDArray[np.float64]


@attrs.frozen
class RowBatch:
    id: NDArray[np.int64]
    data: NDArray[np.float64]


@attrs.frozen
class Row(Record[RowBatch]):
    id: np.int64
    data: NDArray[np.float64]


def make(form: str, i: int) -> Any:
    """Row ``i`` in a form; its data depends on ``i`` alone."""
    number, data = np.int64(i), np.array([i, 0.5 * i, -1.0])
    if form == "array":
        return data
    values = {"id": number, "data": data}
    forms: dict[str, Any] = {
        "tuple": (number, data),
        "named": Named(number, data),
        "record": Row(number, data),
        "dict": values,
    }
    return forms[form]


def ids(element: Any) -> list[int]:
    """The source rows in an element: one, or those of a batch."""
    if isinstance(element, list):
        return [i for part in element for i in ids(part)]
    parts = components(element)
    if parts is None:
        return [int(i) for i in np.asarray(element)[..., 0].ravel()]
    return [int(i) for i in np.ravel(parts[0][1])]


def with_data(element: Any, change: Callable[[NDArray[np.float64]], Any]) -> Any:
    """The element with its data changed and its identity kept."""
    if isinstance(element, list):
        return [with_data(part, change) for part in element]
    if isinstance(element, np.ndarray):
        changed = change(element)
        changed[..., 0] = element[..., 0]
        return changed
    if isinstance(element, dict):
        return {**element, "data": change(element["data"])}
    if attrs.has(type(element)):
        return attrs.evolve(element, data=change(element.data))
    if isinstance(element, Named):
        return element._replace(data=change(element.data))
    return (element[0], change(element[1]), *element[2:])


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure, dtype, shape and value."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    parts = components(a)
    if parts is None:
        return bool(a == b)
    others = components(b)
    assert others is not None
    return [n for n, _ in parts] == [n for n, _ in others] and all(
        same(x, y) for (_, x), (_, y) in zip(parts, others, strict=True)
    )

"""Test elements: each carries the identities of its source rows.

The laws must know from which rows an element was computed, for arbitrary chains of operators. So
row ``i`` contains a mark ``i + 1``: in a component of dtype int32, or in a float64 array as the
only entry that is a whole number. The marks in the result of an operator identify its rows. Other
components are float32, numbers that operators add have other types, and padding is at most 0, so
they are never taken for marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np
from numpy.typing import NDArray

from flowdsl import Record

FORMS = ("tuple", "named", "record", "dict", "array", "listed")
"""The structures that a row can have."""


class Named(NamedTuple):
    """A row as a named tuple."""

    id: np.int32
    data: NDArray[np.float32]


@attrs.frozen
class RowBatch:
    """A batch of ``Row``."""

    id: NDArray[np.int32]
    data: NDArray[np.float32]


@attrs.frozen
class Row(Record[RowBatch]):
    """A row as a record, with a class for its batches."""

    id: np.int32
    data: NDArray[np.float32]


@dataclass(frozen=True)
class Listed:
    """A row as a tokenizer returns it: lists of numbers, and text."""

    id: np.int32
    data: list[float]
    name: str


def formed(form: str, number: np.int32, data: NDArray[np.float32]) -> Any:
    """Create a row with this mark and data."""
    if form == "array":
        return np.array([number, 0.25, -0.25])
    if form == "listed":
        return Listed(number, [float(np.floor(data[0])) + 0.25, -0.25], f"row {number}")
    forms: dict[str, Any] = {
        "tuple": (number, data),
        "named": Named(number, data),
        "record": Row(number, data),
        "dict": {"id": number, "data": data},
    }
    return forms[form]


def make(form: str, i: int) -> Any:
    """Create row ``i`` in a form; its data depends only on ``i``.

    >>> make("tuple", 3)
    (np.int32(4), array([ 3. ,  1.5, -1. ], dtype=float32))
    """
    return formed(form, np.int32(i + 1), np.array([i, 0.5 * i, -1.0], np.float32))


def parts_of(element: Any) -> list[tuple[Any, Any]] | None:
    """Return the components of an element by name, or None for a single value.

    A list of numbers or text is a single value; the components of any other list are its items.
    """
    if isinstance(element, list) and is_plain(element):
        return None
    if isinstance(element, dict):
        return list(element.items())
    if isinstance(element, tuple | list):
        names = getattr(element, "_fields", None) or range(len(element))
        return list(zip(names, element, strict=True))
    if attrs.has(type(element)):
        return list(attrs.asdict(element, recurse=False).items())
    if is_dataclass(element):
        return [(field.name, getattr(element, field.name)) for field in fields(element)]
    if isinstance(element, msgspec.Struct):
        return [(name, getattr(element, name)) for name in element.__struct_fields__]
    return None


def is_plain(items: list[Any]) -> bool:
    """Return True if all items are numbers or text."""
    return bool(items) and all(type(x) in (int, float, str) for x in items)


def is_text(leaf: Any) -> bool:
    """Return True if a value is text, or a list of text."""
    return isinstance(leaf, str) or (isinstance(leaf, list) and isinstance(leaf[0], str))


def rebuilt(element: Any, values: list[Any]) -> Any:
    """Return an element of the same form with other components."""
    if isinstance(element, dict):
        return dict(zip(element, values, strict=True))
    if isinstance(element, msgspec.Struct):
        return type(element)(**dict(zip(element.__struct_fields__, values, strict=True)))
    if attrs.has(type(element)) or is_dataclass(element) or hasattr(element, "_fields"):
        return type(element)(*values)
    return type(element)(values)


def leaves(element: Any) -> Iterator[Any]:
    """Yield every single value of an element, in order."""
    parts = parts_of(element)
    if parts is None:
        yield element
    else:
        for _, part in parts:
            yield from leaves(part)


def with_leaves(element: Any, change: Callable[[Any], Any]) -> Any:
    """Return the element with every single value changed."""
    parts = parts_of(element)
    if parts is None:
        return change(element)
    return rebuilt(element, [with_leaves(part, change) for _, part in parts])


def _is_mark(leaf: Any) -> Any:
    """Return a mask of the marks in a value."""
    dtype = getattr(leaf, "dtype", None)
    if dtype == np.int32:
        return leaf > 0
    if dtype == np.float64:
        return (leaf > 0) & (leaf == np.floor(leaf))
    return np.zeros(np.shape(leaf), bool)


def ids(element: Any) -> list[int]:
    """Return the source rows of an element, in order.

    >>> ids([make("tuple", 3), make("array", 7)])
    [3, 7]
    """
    marks = (np.ravel(leaf)[np.ravel(_is_mark(leaf))] for leaf in leaves(element))
    return [int(i) - 1 for leaf_marks in marks for i in leaf_marks]


def without_ids(element: Any) -> Any:
    """Return the element without the marks of its rows."""
    return with_leaves(
        element,
        lambda leaf: (
            np.where(_is_mark(leaf), 0, leaf).astype(leaf.dtype)[()]
            if hasattr(leaf, "dtype")
            else leaf
        ),
    )


def with_data(element: Any, change: Callable[[NDArray[Any]], Any]) -> Any:
    """Return the element with its data changed and its marks preserved.

    ``change`` must not return positive whole numbers, which would be marks.
    """

    def changed(leaf: Any) -> Any:
        if getattr(leaf, "dtype", None) not in (np.float32, np.float64):
            return leaf
        keep = _is_mark(leaf) | (np.asarray(leaf) == 0)
        return np.where(keep, leaf, change(np.asarray(leaf))).astype(leaf.dtype)[()]

    return with_leaves(element, changed)


def with_other_data(element: Any) -> Any:
    """Return the element with every number of its data changed, and its marks preserved.

    >>> with_other_data(make("tuple", 3))
    (np.int32(4), array([ 3.5,  2. , -0.5], dtype=float32))
    """

    def changed(leaf: Any) -> Any:
        if getattr(leaf, "dtype", None) in (np.float32, np.float64):
            return np.where(_is_mark(leaf), leaf, leaf + 0.5).astype(leaf.dtype)[()]
        has_numbers = isinstance(leaf, list) and isinstance(leaf[0], float)
        return [number + 0.5 for number in leaf] if has_numbers else leaf

    return with_leaves(element, changed)


def same(a: object, b: object) -> bool:
    """Return True if two values are equal in type, structure, dtype, shape and value.

    NaN is equal to itself.

    >>> same((1, np.float32("nan")), (1, np.float32("nan")))
    True
    >>> same([float("nan")], [float("nan")]), same([1], [1.0])
    (True, False)
    >>> same(1, np.int64(1))
    False
    """
    if type(a) is not type(b):
        return False
    if type(a) is list and type(b) is list:
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic) and isinstance(b, np.ndarray | np.generic):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if not a.dtype.hasobject and a.tobytes() == b.tobytes():
            return True  # also NaN of bfloat16, which NumPy does not know
        with np.errstate(invalid="ignore"):  # signalling NaN
            return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM"))
    parts, others = parts_of(a), parts_of(b)
    if parts is None or others is None:
        return bool(a == b or (a != a and b != b))
    return [n for n, _ in parts] == [n for n, _ in others] and all(
        same(x, y) for (_, x), (_, y) in zip(parts, others, strict=True)
    )

"""Stacking: how rows become a batch.

No dtype depends on the values: arrays and NumPy scalars keep theirs, bool, int and float have one
each, and what differs is an error that names the component and the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements import Record, Rows, assemble, batch_type, components
from flowdsl.errors import SpecMismatch
from flowdsl.specs import ArraySpec, Spec, StructSpec, ValueSpec, spec_of

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

Allocate: TypeAlias = Callable[[tuple[int, ...], "np.dtype[Any]"], "NDArray[Any]"]
"""Where a new array's memory comes from: ``np.empty``, or a slab that another process sees."""


_FIXED = {bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64)}
"""How Python numbers stack, whatever their values: no dtype depends on the data."""


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.empty(shape, dtype)


def stack(rows: Sequence[Any], allocate: Allocate = _empty, at: str = "element") -> Any:
    """Stack every component of equal rows along a new leading axis.

    Arrays and NumPy scalars keep their dtype; bool, int and float become bool, int64 and float64.
    A tuple gives a tuple, a dict a dict, a record the batch type that it names.

    Raises:
        SpecMismatch: Rows differ in form, dtype or shape, or hold what does not stack; the message
            names the component, the row and both sides.
    """
    first = rows[0]
    kind = cast("type", type(first))
    if isinstance(first, np.ndarray):
        return _stack_arrays(rows, allocate, at)
    if len(set(map(type, rows))) > 1:
        raise _differ(rows, at)
    if isinstance(first, np.generic) or kind in _FIXED:
        return _stack_scalars(rows, allocate, at)
    columns = _columns(rows, at)
    stacked = {name: stack(column, allocate, f"{at}.{name}") for name, column in columns}
    if isinstance(first, Record):
        return assemble(batch_type(kind), stacked)
    return assemble(dict if kind is dict else tuple, stacked)


def _columns(rows: Sequence[Any], at: str) -> list[tuple[str, Sequence[Any]]]:
    """The components of rows of one type, each over all rows."""
    parts = components(rows[0])
    if parts is None:
        raise _unstackable(type(rows[0]).__name__, at)
    names = [name for name, _ in parts]
    if isinstance(rows[0], tuple):
        try:
            return list(zip(names, zip(*rows, strict=True), strict=True))
        except ValueError as error:
            raise _differ(rows, at) from error
    if isinstance(rows[0], dict):
        if any(row.keys() != rows[0].keys() for row in rows):
            raise _differ(rows, at)
        return [(name, [row[name] for row in rows]) for name in names]
    return [(name, [getattr(row, name) for row in rows]) for name in names]


def _stack_scalars(rows: Sequence[Any], allocate: Allocate, at: str) -> NDArray[Any]:
    kind = cast("type", type(rows[0]))
    if kind in _FIXED:
        out = allocate((len(rows),), _FIXED[kind])
        try:
            out[...] = rows
        except OverflowError as error:
            i, x = next((i, x) for i, x in enumerate(rows) if not -(2**63) <= x < 2**63)
            raise SpecMismatch(f"{at}: row {i} of the batch is {x}: too large for int64") from error
        return out
    dtype = cast("np.dtype[Any]", rows[0].dtype)
    if dtype.kind not in "biufcmM":
        raise _unstackable(kind.__name__, at)
    if any(row.dtype != dtype for row in rows):  # times of one type, in other units
        raise _differ(rows, at)
    out = allocate((len(rows),), dtype)
    out[...] = rows
    return out


_ARRAYS = (np.ndarray, np.memmap)
"""Other subclasses mean more than their numbers: a mask, a matrix product."""


def _stack_arrays(rows: Sequence[Any], allocate: Allocate, at: str) -> NDArray[Any]:
    shape, dtype = cast("NDArray[Any]", rows[0]).shape, cast("NDArray[Any]", rows[0]).dtype
    if type(rows[0]) not in _ARRAYS:
        raise _unstackable(type(rows[0]).__name__, at)
    if any(type(row) not in _ARRAYS or row.dtype != dtype or row.shape != shape for row in rows):
        raise _differ(rows, at)
    if dtype.hasobject:
        raise _unstackable("an array of Python objects", at)
    out = allocate((len(rows), *shape), dtype)
    return np.stack(rows, out=out)


def _differ(rows: Sequence[Any], at: str) -> SpecMismatch:
    kind, spec = type(rows[0]), spec_of(rows[0])
    i, row = next((i, x) for i, x in enumerate(rows) if type(x) is not kind or spec_of(x) != spec)
    sides = [str(spec), str(spec_of(row))]
    if sides[0] == sides[1]:
        sides = [kind.__name__, type(row).__name__]
    return SpecMismatch(
        f"{at}: row 0 of the batch is {sides[0]}, row {i} is {sides[1]}; equal dtypes and "
        f"shapes stack (a dtype is never cast: use .map to make them alike)"
    )


def _unstackable(what: str, at: str) -> SpecMismatch:
    return SpecMismatch(
        f"{at}: {what} does not stack; arrays, NumPy scalars, bool, int and float "
        f"do. Leave it out with .map, or say how with batch(n, collate=...)"
    )


def spec_of_batch(spec: Spec, n: int | None, at: str = "element") -> Spec:
    """The spec of ``stack``, from the spec of its rows.

    A tuple that named tuples stack into keeps their names here, for messages.

    Raises:
        SpecMismatch: Rows of this spec can not stack.
    """
    if isinstance(spec, ArraySpec):
        if spec.dtype is not None and spec.dtype.hasobject:
            raise _unstackable("an array of Python objects", at)
        return ArraySpec(spec.dtype, None if spec.shape is None else (n, *spec.shape))
    if isinstance(spec, ValueSpec):
        if spec.type is object:
            return spec
        if spec.type not in _FIXED:
            raise _unstackable(spec.type.__name__, at)
        return ArraySpec(_FIXED[spec.type], (n,))
    fields = tuple((name, spec_of_batch(s, n, f"{at}.{name}")) for name, s in spec.fields)
    if issubclass(spec.form, Record):
        return StructSpec(batch_type(spec.form), fields)
    return StructSpec(dict if spec.form is dict else tuple, fields)


@overload
def lists(rows: Sequence[tuple[A]]) -> tuple[list[A]]: ...
@overload
def lists(rows: Sequence[tuple[A, B]]) -> tuple[list[A], list[B]]: ...
@overload
def lists(rows: Sequence[tuple[A, B, C]]) -> tuple[list[A], list[B], list[C]]: ...
@overload
def lists(rows: Sequence[tuple[A, B, C, D]]) -> tuple[list[A], list[B], list[C], list[D]]: ...
def lists(rows: Sequence[Rows]) -> tuple[list[Any], ...]:
    """Collect each component in a list: ``batch(n, collate=lists)`` takes any values.

    >>> lists([(1, "a"), (2, "b")])
    ([1, 2], ['a', 'b'])
    """
    return tuple(list(column) for column in zip(*rows, strict=True))

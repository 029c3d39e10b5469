"""Stacking: combine rows into a batch, and split a batch into rows.

Values are never cast. Rows that differ raise an error that names the component, the row, both specs
and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.arrays import (
    TEXT,
    arrays_of_lists,
    arrays_of_tensors,
    dtype_of_all,
    rows_differ,
    unstackable,
)
from flowdsl.elements.numbers import NUMBERS, are_one_dtype, dtype_of_number
from flowdsl.elements.preallocated import Allocate, BatchRows, Stacked
from flowdsl.elements.specs import spec_of
from flowdsl.elements.structure import (
    Record,
    assemble,
    batch_type,
    components,
    from_dlpack,
    is_named_tuple,
    is_tensor,
    named_tuple_of,
    remade,
)
from flowdsl.errors import SpecMismatch

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
V = TypeVar("V")

PaddingValue: TypeAlias = int | complex | str | bytes | np.generic
Padding: TypeAlias = PaddingValue | tuple["Padding", ...] | Mapping[str, "Padding"] | None
"""The padding of arrays: one value for all, or a tuple or dict of values by component.
``None`` stands for no padding."""

Length: TypeAlias = int | tuple["Length", ...] | Mapping[str, "Length"] | None
"""The size of the first axis of padded arrays: one for all, or a tuple or dict by component.
``None`` stands for the largest size in the batch."""


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.empty(shape, dtype)


def stack(rows: Sequence[Any], allocate: Allocate = _empty, at: str = "element") -> Any:
    """Stack every component of equal rows along a new leading axis.

    Arrays and NumPy scalars keep their dtype; bool, int, float and complex become bool, int64,
    float64 and complex128, also beside NumPy scalars of these dtypes. A list of numbers is stacked
    as an array, and so is a tensor of another library in CPU memory. Text becomes a list. Tuples
    stack into a tuple, NamedTuples into one of their class, dicts into a dict, records into the
    batch type that their class names, instances of other attrs classes or dataclasses into a
    NamedTuple with their fields.

    Raises:
        SpecMismatch: There are no rows; or they differ in structure, dtype or shape, or contain
            values that do not stack; the message names the component, the row and both specs.

    >>> stack([(1, "a", [0.5, 1.5]), (2, "b", [2.5, 3.5])])
    (array([1, 2]), ['a', 'b'], array([[0.5, 1.5],
           [2.5, 3.5]]))
    """
    return pad(rows, padding=None, allocate=allocate, at=at)


def pad(
    rows: Sequence[Any],
    padding: Padding,
    allocate: Allocate = _empty,
    at: str = "element",
    length: Length = None,
) -> Any:
    """Stack rows whose arrays differ in shape: each is padded on the right of every axis.

    With ``length``, the first axis is padded to this size.

    Raises:
        SpecMismatch: As for ``stack``, but shapes of equal rank are allowed; for a padding that the
            component's dtype cannot represent; for a padding or length that does not match the
            rows' structure; and for an array that is longer than ``length``.
    """
    if not len(rows):
        raise SpecMismatch(f"{at}: there are no rows to stack")
    first = rows[0]
    kind = cast("type", type(first))
    if isinstance(first, np.ndarray):
        rows = rows.column("", rows) if isinstance(rows, BatchRows) else rows
        return _gathered(rows, padding, allocate, at, length)
    kinds = set(map(type, rows))
    if not issubclass(kind, TEXT) and all(issubclass(kind, _SCALARS) for kind in kinds):
        check_single(padding, at)
        check_single(length, at, "length")
        return _stack_scalars(rows, kinds, allocate, at)
    if len(kinds) > 1:  # a row before it may differ in size
        differ = (type(x) is not kind and not are_one_dtype(first, x) for x in rows)
        raise rows_differ(rows, at, [*differ].index(True))
    if issubclass(kind, TEXT):
        check_single(padding, at)
        check_single(length, at, "length")
        return list(rows)
    if kind is list:
        check_single(padding, at)
        join = None if padding is None else lambda parts: _pad_arrays(parts, padding, _empty, at)
        arrays = arrays_of_lists(rows, at, join)
        return list(rows) if arrays is None else _gathered(arrays, padding, allocate, at, length)
    columns = columns_of(rows, at)
    if columns is None:
        return _gathered(arrays_of_tensors(rows, at), padding, allocate, at, length)
    names = [name for name, _ in columns]
    paddings = by_component("padding", padding, names, kind, at)
    lengths = by_component("length", length, names, kind, at)
    batch = {
        name: pad(column, paddings[name], allocate, f"{at}.{name}", lengths[name])
        for name, column in columns
    }
    return batch_of_columns(kind, batch)


Collate: TypeAlias = Callable[[list[Any]], Any]
CollateByComponent: TypeAlias = Mapping[str, Collate | None] | tuple[Collate | None, ...]
"""Functions that collate components, by name or in order; components with None are stacked."""


def collated(
    rows: list[Any], collate: Collate | CollateByComponent | None, allocate: Allocate | None = None
) -> Any:
    """Make a batch of rows, by a function of all rows or by functions of their components.

    Components without a function are stacked.

    Raises:
        SpecMismatch: The rows lack components that ``collate`` names.
    """
    if collate is None:
        return stack(rows, allocate or _empty)
    if callable(collate):
        return collate(rows)
    if len(set(map(type, rows))) > 1:
        raise rows_differ(rows, "element")
    columns = columns_of(rows, "element")
    if columns is None:
        raise no_components(str(spec_of(rows[0])))
    functions = functions_of(collate, [name for name, _ in columns], type(rows[0]))
    batch = {
        name: functions[name](list(column))
        if name in functions
        else stack(column, allocate or _empty, f"element.{name}")
        for name, column in columns
    }
    return batch_of_columns(type(rows[0]), batch)


def functions_of(
    collate: CollateByComponent, names: Sequence[str], form: type
) -> dict[str, Collate]:
    """The functions of the components that have one, for elements of the class ``form``.

    Raises:
        SpecMismatch: There are no such components, or a tuple is used for the components of a dict.
    """
    if isinstance(collate, tuple):
        _refuse_tuple("collate", names, form, "element")
        if len(collate) != len(names):
            raise SpecMismatch(
                f"element: it has {len(names)} components, and collate {len(collate)}; pass a "
                f"function, or None, for each component"
            )
        pairs = zip(names, collate, strict=True)
        return {name: func for name, func in pairs if func is not None}
    if unknown := [name for name in collate if name not in names]:
        raise SpecMismatch(
            f"element: it has the components {', '.join(names)}, and collate names "
            f"{', '.join(map(str, unknown))}"
        )
    return {name: func for name, func in collate.items() if func is not None}


def _refuse_tuple(argument: str, names: Sequence[str], form: type, at: str) -> None:
    """Refuse a tuple for the components of a dict, whose order may differ from row to row."""
    if issubclass(form, dict):
        raise SpecMismatch(
            f"{at}: the components of a dict go by name; {argument} must be a dict with the keys "
            f"{', '.join(map(repr, names))}, got a tuple"
        )


def no_components(what: str) -> SpecMismatch:
    """The error for a single value if ``collate`` has a function for each component."""
    return SpecMismatch(
        f"element: {what} has no components that collate could name; pass one function"
    )


def unstack(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch; rows of arrays are views.

    Raises:
        SpecMismatch: Components have no leading axis, or differ in its size.

    >>> list(unstack({"x": np.eye(2, dtype=int), "name": ["a", "b"]}))
    [{'x': array([1, 0]), 'name': 'a'}, {'x': array([0, 1]), 'name': 'b'}]
    """
    sizes = leading_sizes(batch, "element")
    if not sizes:
        raise SpecMismatch("element: it has no components, so its number of rows is unknown")
    (first, n), *others = sizes
    for name, size in others:
        if size != n:
            raise SpecMismatch(
                f"{first} has {n} rows, {name} has {size}: they must have equally many"
            )
    return _rows_of(batch, n)


def leading_sizes(batch: Any, at: str) -> list[tuple[str, int]]:
    """The number of rows of each component, nested ones included."""
    if is_tensor(type(batch)):
        batch = from_dlpack(batch)
    if isinstance(batch, list) or (isinstance(batch, np.ndarray) and batch.ndim):
        return [(at, len(cast("list[Any]", batch)))]
    parts = components(batch)
    if parts is None:
        raise not_a_batch(str(spec_of(batch)), at)
    return [size for name, part in parts for size in leading_sizes(part, f"{at}.{name}")]


def _rows_of(batch: Any, n: int) -> Iterator[Any]:
    """The rows of a batch; ``n`` is their number, for a batch without components."""
    parts = components(batch)
    if parts is None:
        return iter(from_dlpack(batch) if is_tensor(type(batch)) else batch)
    columns = [_rows_of(part, n) for _, part in parts]
    rows = zip(*columns, strict=True) if columns else repeat((), n)
    if isinstance(batch, dict):
        return (dict(zip(batch, row, strict=True)) for row in rows)
    return map(type(batch)._make, rows) if is_named_tuple(type(batch)) else rows


def not_a_batch(what: str, at: str) -> SpecMismatch:
    """The error for a value that is not an array or list, and so has no rows."""
    return SpecMismatch(f"{at}: {what} has no rows; arrays with a leading axis and lists have")


def batch_form(form: type) -> type:
    """The class of batches of rows of this class."""
    if issubclass(form, Record):
        return batch_type(form)
    if is_named_tuple(form):
        return form
    if issubclass(form, (dict, tuple)):
        return dict if issubclass(form, dict) else tuple
    return named_tuple_of(cast("Any", form))


def batch_of_columns(kind: type, batch: dict[str, Any]) -> Any:
    """The batch of rows of the class ``kind``, from its components."""
    form = batch_form(kind)
    return assemble(form, batch) if issubclass(kind, Record) else remade(form, batch)


def columns_of(rows: Sequence[Any], at: str) -> list[tuple[str, Sequence[Any]]] | None:
    """The components of rows of one type, each over all rows; None for single values."""
    parts = components(rows[0])
    if parts is None:
        return None
    columns = _columns_by_name(rows, [name for name, _ in parts], at)
    if isinstance(rows, BatchRows):
        return [(name, rows.column(name, column)) for name, column in columns]
    return columns


def _columns_by_name(
    rows: Sequence[Any], names: Sequence[str], at: str
) -> list[tuple[str, Sequence[Any]]]:
    if isinstance(rows[0], tuple):
        try:
            return list(zip(names, zip(*rows, strict=True), strict=True))
        except ValueError as error:
            raise rows_differ(rows, at) from error
    if isinstance(rows[0], dict):
        if any(row.keys() != rows[0].keys() for row in rows):
            raise rows_differ(rows, at)
        return [(name, [row[name] for row in rows]) for name in names]
    return [(name, [getattr(row, name) for row in rows]) for name in names]


_SCALARS = (*NUMBERS, np.generic)


def _stack_scalars(
    rows: Sequence[Any], kinds: set[type], allocate: Allocate, at: str
) -> NDArray[Any]:
    dtypes = {dtype_of_number(kind) for kind in kinds if not issubclass(kind, np.generic)}
    if any(issubclass(kind, np.generic) for kind in kinds):
        # From the values: one class has times in several units.
        dtypes |= {row.dtype for row in rows if isinstance(row, np.generic)}
    if len(dtypes) > 1:
        raise rows_differ(rows, at)
    dtype = dtypes.pop()
    if dtype.hasobject:
        raise unstackable(f"a {type(rows[0]).__name__} of Python objects", at)
    out = allocate((len(rows),), dtype)
    try:
        out[...] = rows
    except OverflowError as error:
        i, x = next((i, x) for i, x in enumerate(rows) if not -(2**63) <= x < 2**63)
        raise SpecMismatch(f"{at}: row {i} of the batch is {x}: too large for int64") from error
    return out


def _gathered(
    rows: Sequence[Any], padding: Padding, allocate: Allocate, at: str, length: Length = None
) -> Any:
    """The batch of rows that are arrays."""
    if padding is not None:
        return _pad_arrays(rows, padding, allocate, at, length)
    length = check_single(length, at, "length")
    if length is not None and rows[0].ndim and len(rows[0]) != length:
        raise not_padded(len(rows[0]), length, at)
    return _stack_arrays(rows, dtype_of_all(rows, at), allocate, at)


def _stack_arrays(rows: Sequence[Any], dtype: np.dtype[Any], allocate: Allocate, at: str) -> Any:
    shape = cast("tuple[int, ...]", rows[0].shape)
    if any(row.shape != shape for row in rows):
        raise rows_differ(rows, at)
    if isinstance(rows, Stacked):
        return rows.batch
    if not shape and dtype.kind in "US":  # text, in arrays without an axis
        return [row[()] for row in rows]
    out = allocate((len(rows), *shape), dtype)
    if not shape:
        return np.stack(rows, out=out)
    # Like ``np.stack``, but without a temporary array for each row.
    np.concatenate(rows, out=out.reshape(len(rows) * shape[0], *shape[1:]))
    return out


def _pad_arrays(
    rows: Sequence[Any], padding: Padding, allocate: Allocate, at: str, length: Length = None
) -> Any:
    length = check_single(length, at, "length")
    dtype = dtype_of_all(rows, at)
    shapes = [cast("tuple[int, ...]", row.shape) for row in rows]
    if not shapes[0]:
        return _stack_arrays(rows, dtype, allocate, at)
    rank = len(shapes[0])
    i = next((i for i, shape in enumerate(shapes) if len(shape) != rank), None)
    if i is not None:
        raise SpecMismatch(
            f"{at}: row 0 of the batch is {spec_of(rows[0])}, row {i} is {spec_of(rows[i])}; "
            f"arrays of equal rank are padded"
        )
    fill = checked_padding(padding, dtype, at)
    if len(set(shapes)) == 1 and length in (None, shapes[0][0]):
        return _stack_arrays(rows, dtype, allocate, at)
    dims = list(map(max, zip(*shapes, strict=True)))
    if length is not None:
        if dims[0] > length:
            raise too_long(dims[0], length, at)
        dims[0] = length
    if dtype.kind in "US":
        wide = np.asarray(fill).dtype.newbyteorder(dtype.byteorder)
        dtype = max(dtype, wide, key=lambda dtype: dtype.itemsize)
    out = allocate((len(rows), *dims), dtype)
    out[...] = fill
    for padded, row in zip(out, rows, strict=True):
        padded[tuple(map(slice, row.shape))] = row
    return out


# -- padding values --------------------------------------------------------------------------------


def by_component(
    argument: str, value: Any, names: Sequence[str], form: type, at: str
) -> dict[str, Any]:
    """The padding or length of each component of an element of the class ``form``.

    Raises:
        SpecMismatch: There are no such components, or a tuple is used for the components of a dict.
    """
    if isinstance(value, tuple):
        values = cast("tuple[object, ...]", value)
        _refuse_tuple(argument, names, form, at)
        if len(values) != len(names):
            raise SpecMismatch(f"{at}: {len(names)} components, and {argument} has {len(values)}")
        return dict(zip(names, values, strict=True))
    if isinstance(value, Mapping):
        by_name = cast("Mapping[str, object]", value)
        if by_name.keys() != set(names):
            raise SpecMismatch(
                f"{at}: components {', '.join(names)}, and {argument} names "
                f"{', '.join(map(str, by_name))}"
            )
        return {name: by_name[name] for name in names}
    return dict.fromkeys(names, value)


def checked_padding(padding: Padding, dtype: np.dtype[Any], at: str) -> Any:
    """The padding as a value of this dtype; 0 stands for an empty text, NaT and the like.

    Raises:
        SpecMismatch: The dtype cannot represent the padding.
    """
    check_single(padding, at)
    if dtype.kind not in "biufc" and repr(padding) == "0":
        return np.array("NaT", dtype)[()] if dtype.kind == "M" else np.zeros((), dtype)[()]
    scalar: Any = np.asarray(padding)
    # "O" is the dtype of an int of more than 64 bits.
    are_numbers = scalar.dtype.kind in "biufcO" and dtype.kind in "biufc"
    if are_numbers and (dtype.kind == "c" or scalar.dtype.kind != "c"):
        with np.errstate(all="ignore"), suppress(OverflowError):
            value = scalar.astype(dtype)[()]
            both_nan = value != value and scalar != scalar
            if value.item() == scalar.item() or both_nan:
                return value
            if dtype.kind == "f" and np.isfinite(value):
                raise _unfit(padding, dtype, at, f"; the nearest is {value!r}")
    elif scalar.dtype.kind == dtype.kind:
        value = scalar.astype(dtype.type if dtype.kind in "US" else dtype)[()]
        both_nat = value != value and padding != padding
        if value == padding or both_nat:
            return value
    raise _unfit(padding, dtype, at)


def _unfit(padding: Padding, dtype: np.dtype[Any], at: str, hint: str = "") -> SpecMismatch:
    return SpecMismatch(f"{at}: padding must be a value that {dtype} has, got {padding!r}{hint}")


def check_single(
    value: V | tuple[Any, ...] | Mapping[str, Any], at: str, argument: str = "padding"
) -> V:
    """Return the padding or length of a single component.

    Raises:
        SpecMismatch: It is a tuple or dict, with one for each of several components.
    """
    if isinstance(value, (tuple, Mapping)):
        raise SpecMismatch(f"{at}: a single component, and {argument} has several: {value!r}")
    return value


def not_padded(size: int | None, length: int, at: str) -> SpecMismatch:
    """The error for an array whose size is not the length, if padding is forbidden."""
    return SpecMismatch(
        f"{at}: length={length} cannot be reached by an array of {size} entries without padding; "
        f"pass a padding, or length=None for this component"
    )


def too_long(size: int, length: int, at: str) -> SpecMismatch:
    """The error for an array that is longer than the length of a batch."""
    return SpecMismatch(
        f"{at}: an array of {size} entries is longer than length={length}; cut it with .map, or "
        f"give a greater length"
    )


# -- without stacking ------------------------------------------------------------------------------


@overload
def lists(rows: Sequence[tuple[A]]) -> tuple[list[A]]: ...
@overload
def lists(rows: Sequence[tuple[A, B]]) -> tuple[list[A], list[B]]: ...
@overload
def lists(rows: Sequence[tuple[A, B, C]]) -> tuple[list[A], list[B], list[C]]: ...
@overload
def lists(rows: Sequence[tuple[A, B, C, D]]) -> tuple[list[A], list[B], list[C], list[D]]: ...
@overload
def lists(rows: Sequence[Mapping[str, A]]) -> dict[str, list[A]]: ...
def lists(rows: Sequence[Any]) -> Any:
    """Collect each component in a list: ``batch(n, collate=lists)`` accepts any values.

    Tuples become a tuple of lists, dicts a dict of lists. For any other elements,
    ``collate=list`` makes one list of them.

    Raises:
        SpecMismatch: The rows are neither tuples nor dicts, or differ in their components.

    >>> lists([(1, "a"), (2, "b")])
    ([1, 2], ['a', 'b'])
    >>> lists([{"x": 1}, {"x": 2}])
    {'x': [1, 2]}
    """
    if not len(rows):
        raise SpecMismatch("lists: there are no rows to collect")
    if len(set(map(type, rows))) > 1:
        raise rows_differ(rows, "element")
    columns = columns_of(rows, "element")
    if columns is None or not isinstance(rows[0], (tuple, dict)):
        raise SpecMismatch(
            f"lists: elements must be tuples or dicts, got {type(rows[0]).__name__}; collate=list "
            f"makes a list of any elements"
        )
    collected = {name: list(column) for name, column in columns}
    return batch_of_columns(type(rows[0]), collected)

"""Stacking: how rows become a batch.

No dtype depends on the values: arrays and NumPy scalars keep theirs; bool, int, float and complex
have one each, in lists too; text becomes a list. What differs is an error that names the component
and the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements import Record, assemble, batch_type, components, from_dlpack
from flowdsl.errors import SpecMismatch
from flowdsl.specs import (
    UNKNOWN,
    ArraySpec,
    ListSpec,
    Spec,
    StructSpec,
    ValueSpec,
    any_width,
    spec_of,
    with_sizes,
)

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

Allocate: TypeAlias = Callable[[tuple[int, ...], "np.dtype[Any]"], "NDArray[Any]"]
"""Where a new array's memory comes from: ``np.empty``, or a slab that another process sees."""

PaddingValue: TypeAlias = int | complex | str | bytes | np.generic
Padding: TypeAlias = PaddingValue | tuple["Padding", ...] | Mapping[str, "Padding"] | None
"""What arrays are padded with: one value for all of them, or a tuple or dict of them by component.
``None``: not at all."""


_FIXED = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
"""How Python numbers stack, whatever their values: no dtype depends on the data."""


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.empty(shape, dtype)


def stack(rows: Sequence[Any], allocate: Allocate = _empty, at: str = "element") -> Any:
    """Stack every component of equal rows along a new leading axis.

    Arrays and NumPy scalars keep their dtype; bool, int, float and complex become bool, int64,
    float64 and complex128. A list of numbers is an array, and a tensor of another library in the
    CPU's memory is one too. Text becomes a list. A tuple gives a tuple, a dict a dict, a record the
    batch type that it names, any other attrs class or dataclass a tuple.

    Raises:
        SpecMismatch: There are no rows; or they differ in form, dtype or shape, or hold what does
            not stack; the message names the component, the row and both sides.

    >>> stack([(1, "a", [0.5, 1.5]), (2, "b", [2.5, 3.5])])
    (array([1, 2]), ['a', 'b'], array([[0.5, 1.5],
           [2.5, 3.5]]))
    """
    if not len(rows):
        raise SpecMismatch(f"{at}: there are no rows to stack")
    first = rows[0]
    kind = cast("type", type(first))
    if isinstance(first, np.ndarray):
        return _stack_arrays(rows, allocate, at)
    if len(set(map(type, rows))) > 1:
        raise _differ(rows, at)
    if issubclass(kind, (str, bytes)):
        return list(rows)
    if isinstance(first, np.generic) or issubclass(kind, _NUMBERS):
        return _stack_scalars(rows, allocate, at)
    if kind is list:
        arrays = _arrays_of_lists(rows, at)
        return list(rows) if arrays is None else _stack_arrays(arrays, allocate, at)
    columns = _columns(rows, at)
    if columns is None:
        return _stack_arrays(_tensors(rows, at), allocate, at)
    stacked = {name: stack(column, allocate, f"{at}.{name}") for name, column in columns}
    return assemble(_batch_form(kind), stacked)


def pad(
    rows: Sequence[Any], padding: Padding, allocate: Allocate = _empty, at: str = "element"
) -> Any:
    """Stack rows whose arrays differ in shape: each is padded on the right of every axis.

    Raises:
        SpecMismatch: As for ``stack``, but for shapes of one rank; and for a padding that is no
            value of its component's dtype, or not of the form of the rows.
    """
    first = rows[0]
    kind = cast("type", type(first))
    if isinstance(first, np.ndarray):
        return _pad_arrays(rows, padding, allocate, at)
    if len(set(map(type, rows))) > 1:
        raise _differ(rows, at)
    if isinstance(first, np.generic) or issubclass(kind, (*_NUMBERS, str, bytes)):
        _check_single(padding, at)
        return stack(rows, allocate, at)
    if kind is list:
        arrays = _arrays_of_lists(rows, at)
        return list(rows) if arrays is None else _pad_arrays(arrays, padding, allocate, at)
    columns = _columns(rows, at)
    if columns is None:
        return _pad_arrays(_tensors(rows, at), padding, allocate, at)
    paddings = _padding_of(padding, [name for name, _ in columns], at)
    padded = {
        name: pad(column, paddings[name], allocate, f"{at}.{name}") for name, column in columns
    }
    return assemble(_batch_form(kind), padded)


Collate: TypeAlias = Callable[[list[Any]], Any]
CollateParts: TypeAlias = Mapping[str, Collate] | tuple[Collate | None, ...]
"""How some components are collated: by name, or by number with None for those that stack."""


def collated(
    rows: list[Any], collate: Collate | CollateParts | None, allocate: Allocate = _empty
) -> Any:
    """A batch of rows, by a function of all of them or by functions of their components.

    What has no function stacks.

    Raises:
        SpecMismatch: The rows have no such components.
    """
    if collate is None:
        return stack(rows, allocate)
    if callable(collate):
        return collate(rows)
    if len(set(map(type, rows))) > 1:
        raise _differ(rows, "element")
    columns = _columns(rows, "element")
    if columns is None:
        raise _no_components(str(spec_of(rows[0])))
    functions = _functions_of(collate, [name for name, _ in columns])
    batch = {
        name: functions[name](list(column))
        if name in functions
        else stack(column, allocate, f"element.{name}")
        for name, column in columns
    }
    return assemble(_batch_form(type(rows[0])), batch)


def _functions_of(collate: CollateParts, names: Sequence[str]) -> dict[str, Collate]:
    if isinstance(collate, tuple):
        if len(collate) != len(names):
            raise SpecMismatch(
                f"element: {len(names)} components, and collate has {len(collate)}; give a "
                f"function, or None, for each"
            )
        return {n: f for n, f in zip(names, collate, strict=True) if f is not None}
    if unknown := [name for name in collate if name not in names]:
        raise SpecMismatch(
            f"element: components {', '.join(names)}, and collate names {', '.join(unknown)}"
        )
    return dict(collate)


def _no_components(what: str) -> SpecMismatch:
    return SpecMismatch(
        f"element: {what} has no components that collate could name; give one function"
    )


def unstack(batch: Any) -> Iterator[Any]:
    """The rows of a batch, one by one; those of arrays are views.

    Raises:
        SpecMismatch: Components have no leading axis, or differ in its size.

    >>> list(unstack({"x": np.eye(2, dtype=int), "name": ["a", "b"]}))
    [{'x': array([1, 0]), 'name': 'a'}, {'x': array([0, 1]), 'name': 'b'}]
    """
    (first, n), *others = _leading_sizes(batch, "element") or [("", 0)]
    if not first:
        raise SpecMismatch("element: without components it does not tell how many rows it has")
    for name, size in others:
        if size != n:
            raise SpecMismatch(f"{first} has {n} rows, {name} has {size}: they must have as many")
    return _rows_of(batch, n)


def _leading_sizes(batch: Any, at: str) -> list[tuple[str, int]]:
    """The number of rows of each component, nested ones opened."""
    if isinstance(batch, list) or (isinstance(batch, np.ndarray) and batch.ndim):
        return [(at, len(cast("list[Any]", batch)))]
    parts = components(batch)
    if parts is None:
        raise _not_a_batch(str(spec_of(batch)), at)
    return [found for name, part in parts for found in _leading_sizes(part, f"{at}.{name}")]


def _rows_of(batch: Any, n: int) -> Iterator[Any]:
    parts = components(batch)
    if parts is None:
        return iter(batch)
    columns = [_rows_of(part, n) for _, part in parts]
    rows = zip(*columns, strict=True) if columns else repeat((), n)
    if isinstance(batch, dict):
        return (dict(zip(batch, row, strict=True)) for row in rows)
    return rows


def _not_a_batch(what: str, at: str) -> SpecMismatch:
    return SpecMismatch(f"{at}: {what} has no rows; arrays with a leading axis and lists have")


def _batch_form(form: type) -> type:
    """What rows of this form become."""
    if issubclass(form, Record):
        return batch_type(form)
    return dict if issubclass(form, dict) else tuple


def _columns(rows: Sequence[Any], at: str) -> list[tuple[str, Sequence[Any]]] | None:
    """The components of rows of one type, each over all rows; None where there are none."""
    parts = components(rows[0])
    if parts is None:
        return None
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
    if not isinstance(rows[0], np.generic):
        out = allocate((len(rows),), _dtype_of(kind))
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


_NUMBERS = (int, float, complex)
"""Those of Python; a bool is an int, and so is a member of an ``IntEnum``."""


def _dtype_of(kind: type) -> np.dtype[Any]:
    """The dtype of a Python number's class."""
    return next(dtype for number, dtype in _FIXED.items() if issubclass(kind, number))


def _tensors(rows: Sequence[Any], at: str) -> list[NDArray[Any]]:
    """The arrays that another library's tensors are."""
    try:
        arrays = list(map(from_dlpack, rows))
    except SpecMismatch as error:
        raise SpecMismatch(f"{at}: {error}") from error
    found = [array for array in arrays if array is not None]
    if len(found) < len(rows):
        raise _unstackable(type(rows[0]).__name__, at)
    return found


def _arrays_of_lists(rows: Sequence[list[Any]], at: str) -> list[NDArray[Any]] | None:
    """The arrays that lists of numbers are; None where they are lists of text."""
    arrays = [_array_of_list(row, f"{at}: row {i} of the batch") for i, row in enumerate(rows)]
    texts = sum(array is None for array in arrays)
    if texts == len(rows) and any(rows):
        return None
    # A list without items says nothing of its dtype: it has that of the others.
    known = next((array for array in arrays if array is not None), None)
    if known is None:
        raise SpecMismatch(
            f"{at}: all lists of the batch are empty, which tells no dtype; make them arrays with "
            f".map, as np.array(items, np.int64)"
        )
    empty = np.empty((0, *(0 for _ in known.shape[1:])), known.dtype)
    if any(row and array is None for row, array in zip(rows, arrays, strict=True)):
        raise _differ(rows, at)
    return [empty if array is None else array for array in arrays]


def _array_of_list(items: list[Any], where: str) -> NDArray[Any] | None:
    """The array that a list of numbers is; None for a list of text, or of nothing."""
    kinds = set(map(type, items))
    if not kinds or all(issubclass(kind, (str, bytes)) for kind in kinds):
        return None
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise SpecMismatch(
            f"{where} is a list that holds {names}; a list of one kind of number stacks: make it "
            f"an array with .map, as np.array(items, np.float64)"
        )
    (kind,) = kinds
    if kind is list:
        parts = [_array_of_list(item, where) for item in items]
        known = next((part for part in parts if part is not None), None)
        if known is None:
            return None
        items = [np.empty((0, *known.shape[1:]), known.dtype) if p is None else p for p in parts]
    elif issubclass(kind, _NUMBERS) and not issubclass(kind, np.generic):
        try:
            return np.array(items, _dtype_of(kind))
        except OverflowError as error:
            raise SpecMismatch(f"{where} has an int too large for int64") from error
    elif not issubclass(kind, (np.ndarray, np.generic)):
        raise SpecMismatch(
            f"{where} is a list of {kind.__name__}, which does not stack; lists of numbers, of "
            f"arrays and of text do. Make it an array with .map, or say how with "
            f"batch(n, collate=...)"
        )
    if len({item.dtype for item in items}) > 1:
        raise SpecMismatch(f"{where} is a list of arrays that differ in dtype; none is cast")
    if len({item.shape for item in items}) > 1:
        raise SpecMismatch(
            f"{where} is a ragged list: its items differ in length; make an array of it with "
            f".map, or say how with batch(n, collate=...)"
        )
    if items[0].dtype.hasobject:
        raise _unstackable("a list of arrays of Python objects", where)
    return np.stack(items)


_ARRAYS = {np.ndarray, np.memmap}
"""Other subclasses mean more than their numbers: a mask, a matrix product."""


def _stack_arrays(rows: Sequence[Any], allocate: Allocate, at: str) -> NDArray[Any]:
    first = cast("NDArray[Any]", rows[0])
    shape, dtype = first.shape, _dtype_of_all(rows, at)
    if any(row.shape != shape for row in rows):
        raise _differ(rows, at)
    out = allocate((len(rows), *shape), dtype)
    if not shape:
        return np.stack(rows, out=out)
    # What ``np.stack`` does, without an array made for each row on the way.
    np.concatenate(rows, out=out.reshape(len(rows) * shape[0], *shape[1:]))
    return out


def _dtype_of_all(rows: Sequence[Any], at: str) -> np.dtype[Any]:
    dtype = cast("np.dtype[Any]", rows[0].dtype)
    if type(rows[0]) not in _ARRAYS:
        raise _unstackable(type(rows[0]).__name__, at)
    if not set(map(type, rows)) <= _ARRAYS or any(row.dtype is not dtype for row in rows):
        text = dtype.kind in "US"  # how wide it is, depends on what is written there
        for i, row in enumerate(rows):  # dtypes that are no builtin ones are equal, not the same
            alike = type(row) in _ARRAYS and (
                row.dtype.kind == dtype.kind if text else row.dtype == dtype
            )
            if not alike:
                raise _differ(rows, at, i)
        if text:
            dtype = max((row.dtype for row in rows), key=lambda one: one.itemsize)
    if dtype.hasobject:
        raise _unstackable("an array of Python objects", at)
    return dtype


def _pad_arrays(rows: Sequence[Any], padding: Padding, allocate: Allocate, at: str) -> NDArray[Any]:
    shapes, dtype = (
        [cast("tuple[int, ...]", np.shape(row)) for row in rows],
        _dtype_of_all(rows, at),
    )
    if padding is None or not shapes[0]:
        return _stack_arrays(rows, allocate, at)
    i = next((i for i, shape in enumerate(shapes) if len(shape) != len(shapes[0])), None)
    if i is not None:
        raise SpecMismatch(
            f"{at}: row 0 of the batch is {spec_of(rows[0])}, row {i} is {spec_of(rows[i])}; "
            f"arrays of equal rank are padded"
        )
    fill = _fitting(padding, dtype, at)
    if len(set(shapes)) == 1:
        return _stack_arrays(rows, allocate, at)
    if dtype.kind in "US":  # as wide as the widest text
        dtype = np.result_type(dtype, np.asarray(fill).dtype)
    out = allocate((len(rows), *map(max, zip(*shapes, strict=True))), dtype)
    out[...] = fill
    for place, row in zip(out, rows, strict=True):
        place[tuple(map(slice, row.shape))] = row
    return out


def _padding_of(padding: Padding, names: Sequence[str], at: str) -> dict[str, Padding]:
    """The padding of each of these components."""
    if isinstance(padding, tuple):
        if len(padding) != len(names):
            raise SpecMismatch(f"{at}: {len(names)} components, and padding has {len(padding)}")
        return dict(zip(names, padding, strict=True))
    if isinstance(padding, Mapping):
        if padding.keys() != set(names):
            raise SpecMismatch(
                f"{at}: components {', '.join(names)}, and padding names {', '.join(padding)}"
            )
        return {name: padding[name] for name in names}
    return dict.fromkeys(names, padding)


def _fitting(padding: Padding, dtype: np.dtype[Any], at: str) -> Any:
    """The value of this dtype that the padding is; for text, 0 is none."""
    _check_single(padding, at)
    if dtype.kind in "US" and repr(padding) == "0":
        return dtype.type()
    given: Any = np.asarray(padding)
    numbers = given.dtype.kind in "biufcO" and dtype.kind in "biufc"  # O: an int of any size
    if numbers and (dtype.kind == "c" or given.dtype.kind != "c"):
        with np.errstate(all="ignore"), suppress(OverflowError):
            value = given.astype(dtype)[()]
            if value.item() == given.item() or (value != value and given != given):
                return value
            if dtype.kind == "f" and np.isfinite(value):
                raise _unfit(padding, dtype, at, f"; the nearest is {value!r}")
    elif given.dtype.kind == dtype.kind:
        value = given.astype(dtype.type if dtype.kind in "US" else dtype)[()]
        if value == padding or (value != value and padding != padding):
            return value
    raise _unfit(padding, dtype, at)


def _unfit(padding: Padding, dtype: np.dtype[Any], at: str, hint: str = "") -> SpecMismatch:
    return SpecMismatch(f"{at}: padding must be a value that {dtype} has, got {padding!r}{hint}")


def _check_single(padding: Padding, at: str) -> None:
    if isinstance(padding, (tuple, Mapping)):
        raise SpecMismatch(f"{at}: a single component, and padding has several: {padding!r}")


def _differ(rows: Sequence[Any], at: str, i: int | None = None) -> SpecMismatch:
    """Row ``i`` is not like row 0; without ``i``, the first that is not."""
    kind, spec = type(rows[0]), spec_of(rows[0])
    if i is None:
        i = next(i for i, x in enumerate(rows) if type(x) is not kind or spec_of(x) != spec)
    sides = [str(spec), str(spec_of(rows[i]))]
    if sides[0] == sides[1]:
        sides = [kind.__name__, type(rows[i]).__name__]
    return SpecMismatch(
        f"{at}: row 0 of the batch is {sides[0]}, row {i} is {sides[1]}; equal dtypes and "
        f"shapes stack (a dtype is never cast: use .map to make them alike)"
    )


def _unstackable(what: str, at: str) -> SpecMismatch:
    return SpecMismatch(
        f"{at}: {what} does not stack; arrays, numbers, text, and lists of them do. Leave it out "
        f"with .map, or say how with batch(n, collate=...)"
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
        if spec.shape == () and spec.dtype is not None and spec.dtype.kind in "US":
            return ListSpec(ValueSpec(spec.dtype.type), n)
        return ArraySpec(any_width(spec.dtype), None if spec.shape is None else (n, *spec.shape))
    if isinstance(spec, ListSpec):
        if spec.item == UNKNOWN:
            return UNKNOWN
        array = spec_of_batch(spec.item, spec.length, at)
        return ListSpec(spec, n) if isinstance(array, ListSpec) else spec_of_batch(array, n, at)
    if isinstance(spec, ValueSpec):
        if spec.type in (object, list):
            return UNKNOWN
        if issubclass(spec.type, (str, bytes)):
            return ListSpec(spec, n)
        if not issubclass(spec.type, _NUMBERS):
            return _spec_of_tensors(spec.type, at)
        return ArraySpec(_dtype_of(spec.type), (n,))
    fields = tuple((name, spec_of_batch(s, n, f"{at}.{name}")) for name, s in spec.fields)
    return StructSpec(_batch_form(spec.form), fields)


def _spec_of_tensors(kind: type, at: str) -> Spec:
    if not hasattr(kind, "__dlpack__"):
        raise _unstackable(kind.__name__, at)
    return ArraySpec()


def spec_of_parts(spec: Spec, collate: CollateParts, n: int | None) -> Spec:
    """The spec of ``collated`` with functions of components, from the spec of its rows.

    Raises:
        SpecMismatch: Rows of this spec have no such components, or those without a function do not
            stack.
    """
    if not isinstance(spec, StructSpec):
        if spec in (UNKNOWN, ValueSpec(tuple), ValueSpec(dict)):
            return UNKNOWN
        raise _no_components(str(spec))
    functions = _functions_of(collate, [name for name, _ in spec.fields])
    fields = tuple(
        (name, UNKNOWN if name in functions else spec_of_batch(part, n, f"element.{name}"))
        for name, part in spec.fields
    )
    return StructSpec(_batch_form(spec.form), fields)


def spec_of_padded_batch(spec: Spec, n: int | None, padding: Padding, at: str = "element") -> Spec:
    """The spec of ``pad``, from the spec of its rows.

    Raises:
        SpecMismatch: Rows of this spec can not stack, or not with this padding.
    """
    if isinstance(spec, StructSpec):
        names = [name for name, _ in spec.fields]
        if spec.form is tuple:  # that of a batch of named ones keeps their names, for messages only
            names = list(map(str, range(len(names))))
        paddings = _padding_of(padding, names, at).values()
        fields = tuple(
            (name, spec_of_padded_batch(part, n, value, f"{at}.{name}"))
            for (name, part), value in zip(spec.fields, paddings, strict=True)
        )
        return StructSpec(_batch_form(spec.form), fields)
    if spec != UNKNOWN:
        _check_single(padding, at)
    batch = spec_of_batch(spec, n, at)
    padded = isinstance(batch, ArraySpec) and (batch.shape is None or len(batch.shape) > 1)
    if isinstance(batch, ArraySpec) and padded and batch.dtype and padding is not None:
        _fitting(padding, (isinstance(spec, ArraySpec) and spec.dtype) or batch.dtype, at)
    return batch


def spec_of_row(spec: Spec, at: str = "element") -> Spec:
    """The spec of what ``unstack`` gives, from the spec of the batch.

    Raises:
        SpecMismatch: An element of this spec has no rows.
    """
    if isinstance(spec, StructSpec):
        fields = tuple((name, spec_of_row(part, f"{at}.{name}")) for name, part in spec.fields)
        return StructSpec(dict if spec.form is dict else tuple, fields)
    if isinstance(spec, ListSpec):  # its items tell no size of those of other lists
        return with_sizes(spec.item, UNKNOWN)
    if isinstance(spec, ValueSpec):
        if spec.type is not object and not issubclass(spec.type, list):
            raise _not_a_batch(str(spec), at)
        return UNKNOWN
    if spec.shape == ():
        raise _not_a_batch(str(spec), at)
    dtype, shape = spec.dtype, spec.shape and spec.shape[1:]
    if dtype is not None and dtype.hasobject:
        return UNKNOWN
    if dtype is not None and not dtype.isnative and not shape:  # a scalar has native byte order
        dtype = None if shape is None else np.zeros((), dtype)[()].dtype
    return ArraySpec(dtype, shape)


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
    """Collect each component in a list: ``batch(n, collate=lists)`` takes any values.

    Of tuples it makes a tuple of lists, of dicts a dict. For any other element ``collate=list``
    keeps the elements as they are.

    Raises:
        SpecMismatch: The rows are no tuples and no dicts, or differ in their components.

    >>> lists([(1, "a"), (2, "b")])
    ([1, 2], ['a', 'b'])
    >>> lists([{"x": 1}, {"x": 2}])
    {'x': [1, 2]}
    """
    if not len(rows):
        raise SpecMismatch("lists: there are no rows to collect")
    if len(set(map(type, rows))) > 1:
        raise _differ(rows, "element")
    columns = _columns(rows, "element")
    if columns is None or not isinstance(rows[0], (tuple, dict)):
        raise SpecMismatch(
            f"lists: elements must be tuples or dicts, got {type(rows[0]).__name__}; collate=list "
            f"keeps elements as they are"
        )
    collected = {name: list(column) for name, column in columns}
    return assemble(dict if isinstance(rows[0], dict) else tuple, collected)

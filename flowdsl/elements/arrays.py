"""The values that count as arrays: arrays, lists of numbers, and tensors of other libraries.

Dtypes do not depend on values: arrays and NumPy scalars keep their dtypes; bool, int, float and
complex have one dtype each, in lists too. So ``np.float64`` beside ``float`` stacks. Anything else
is refused; the error names the component, the row, both specs and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.numbers import NUMBERS, are_one_dtype, dtype_of_number, dtype_of_scalar
from flowdsl.elements.specs import ArraySpec, Spec, spec_of
from flowdsl.elements.structure import from_dlpack, is_tensor
from flowdsl.errors import SpecMismatch

Join: TypeAlias = Callable[[list[NDArray[Any]]], NDArray[Any]]
"""Joins a list of arrays into one, along a new axis."""

TEXT = (str, bytes)

_ARRAYS = {np.ndarray, np.memmap}
"""The array classes that stack.

Other subclasses are refused: stacking would lose a mask (``MaskedArray``) or change ``*``
(``matrix``).
"""


def is_alike(first: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return True if two dtypes are equal; texts of different widths are equal, too."""
    if first.kind in "US":
        return (first.kind, first.byteorder) == (other.kind, other.byteorder)
    return first == other


def dtype_of_all(rows: Sequence[Any], at: str) -> np.dtype[Any]:
    """The dtype that all arrays share; for text, the widest.

    Raises:
        SpecMismatch: They differ in dtype, or do not stack.
    """
    dtype = cast("np.dtype[Any]", rows[0].dtype)
    if type(rows[0]) not in _ARRAYS:
        raise unstackable(type(rows[0]).__name__, at)
    # Usually all rows share one dtype object. Dtypes that are not builtin may be equal without
    # being the same object.
    if not set(map(type, rows)) <= _ARRAYS or any(row.dtype is not dtype for row in rows):
        for i, row in enumerate(rows):
            if type(row) not in _ARRAYS or not is_alike(row.dtype, dtype):
                raise rows_differ(rows, at, i)
        if dtype.kind in "US":
            dtype = max((row.dtype for row in rows), key=lambda dtype: dtype.itemsize)
    if dtype.hasobject:
        raise unstackable_objects(dtype, at)
    return dtype


# -- tensors ---------------------------------------------------------------------------------------


def arrays_of_tensors(rows: Sequence[Any], at: str) -> list[NDArray[Any]]:
    """Convert another library's tensors to arrays.

    Raises:
        SpecMismatch: They are not tensors, or NumPy cannot read one.
    """
    if not is_tensor(type(rows[0])):
        raise unstackable(type(rows[0]).__name__, at)
    return [_array_of_tensor(row, f"{at}: row {i} of the batch") for i, row in enumerate(rows)]


def _array_of_tensor(value: object, where: str) -> NDArray[Any]:
    try:
        return from_dlpack(value)
    except SpecMismatch as error:
        raise SpecMismatch(f"{where}: {error}") from error


# -- lists -----------------------------------------------------------------------------------------


def arrays_of_lists(
    rows: Sequence[list[Any]], at: str, join: Join | None = None
) -> list[NDArray[Any]] | None:
    """Convert lists of numbers to arrays; None for lists of text.

    ``join`` combines the arrays of a ragged list; without it, ragged lists are refused.

    Raises:
        SpecMismatch: A list is not an array, or the lists differ, or their dtype is unknown.
    """
    labels = [f"{at}: row {i} of the batch" for i in range(len(rows))]
    dtypes = [_dtype_of_list(row, label) for row, label in zip(rows, labels, strict=True)]
    first = next((i for i, dtype in enumerate(dtypes) if dtype is not None), None)
    if first is None:
        raise SpecMismatch(
            f"{at}: every list of the batch is empty, so its dtype is unknown (an annotation such "
            f"as list[int] does not declare it); make the lists arrays with .map, e.g. "
            f"np.array(items, np.int64), or stack them with batch(n, collate=...)"
        )
    dtype = cast("np.dtype[Any]", dtypes[first])
    for i, other in enumerate(dtypes):
        if other is not None and not is_alike(dtype, other):
            raise rows_differ(rows, at, i, first)
    if dtype == _TEXT_DTYPE:
        return None
    return _with_equal_rank(
        [_array_of_list(row, dtype, label, join) for row, label in zip(rows, labels, strict=True)]
    )


_TEXT_DTYPE = np.dtype(object)
"""Marks lists of text, which stay lists; arrays of objects are refused."""


def _dtype_of_list(items: list[Any], where: str) -> np.dtype[Any] | None:
    """The dtype of a list as an array; None for a list without items.

    ``where`` names the list in errors.
    """
    kinds = _kinds_in(items)
    if not kinds:
        return None
    if all(issubclass(kind, TEXT) for kind in kinds):
        return _TEXT_DTYPE
    if len(kinds) > 1:
        dtypes_of_numbers = set(map(dtype_of_scalar, _items_in(items)))
        if list in kinds or len(dtypes_of_numbers) > 1 or None in dtypes_of_numbers:
            raise _mixed(kinds, where)
        return dtypes_of_numbers.pop()
    (kind,) = kinds
    if issubclass(kind, NUMBERS) and not issubclass(kind, np.generic):
        return dtype_of_number(kind)
    if kind not in _ARRAYS and not issubclass(kind, np.generic) and not is_tensor(kind):
        raise unstackable_list(kind.__name__, where)
    dtypes: set[np.dtype[Any]] = {_as_array(item, where).dtype for item in _items_in(items)}
    dtype, *others = sorted(dtypes, key=str)
    if any(not is_alike(dtype, other) for other in others):
        names = " and ".join(map(str, (dtype, *others)))
        raise SpecMismatch(
            f"{where} is a list that holds arrays of {names}; dtypes are never cast: make "
            f"them equal with .map"
        )
    if dtype.hasobject:
        raise unstackable_list(f"arrays of {_objects_of(dtype)}", where)
    return dtype


def _kinds_in(items: list[Any]) -> set[type]:
    """The types of a list's items; for a list of lists, the types of the inner items."""
    kinds = set(map(type, items))
    return set[type]().union(*map(_kinds_in, items)) if kinds == {list} else kinds


def _items_in(items: list[Any]) -> Iterator[Any]:
    """The items of a list, without the lists in it."""
    for item in items:
        if isinstance(item, list):
            yield from _items_in(item)
        else:
            yield item


def _as_array(item: Any, where: str) -> Any:
    """An array or NumPy scalar unchanged; a tensor as an array."""
    return item if isinstance(item, (np.ndarray, np.generic)) else _array_of_tensor(item, where)


def _array_of_list(
    items: list[Any], dtype: np.dtype[Any], where: str, join: Join | None
) -> NDArray[Any]:
    """Convert a list to an array of this dtype."""
    first = next(_items_in(items), 0)  # an empty list is as a list of numbers
    if isinstance(first, (*NUMBERS, np.generic)):
        try:
            return np.array(items, dtype)
        except OverflowError as error:
            raise SpecMismatch(f"{where} has an int too large for int64") from error
        except ValueError:  # only ragged lists raise a ValueError here
            pass
    if isinstance(items[0], list):
        parts = _with_equal_rank([_array_of_list(item, dtype, where, join) for item in items])
    else:
        parts = [_as_array(item, where) for item in items]
    if len({part.ndim for part in parts}) > 1:
        raise SpecMismatch(
            f"{where} is a list whose items differ in rank; make it an array with .map, or stack "
            f"it with batch(n, collate=...)"
        )
    if len({part.shape for part in parts}) == 1:
        if dtype.kind in "US":  # the result has the largest width
            return np.stack(parts)
        shape = (len(parts), *parts[0].shape)
        return np.stack(parts, out=np.empty(shape, dtype))  # ``out`` keeps the byte order
    if join is None:
        raise SpecMismatch(
            f"{where} is a ragged list: its items differ in shape; padded_batch pads them, or make "
            f"it an array with .map"
        )
    return join(parts)


def _with_equal_rank(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Give empty arrays the rank of the others.

    An empty list became an array of shape (0,); beside one of shape (3, 2) it must be (0, 0).
    """
    rank = max(array.ndim for array in arrays)
    return [
        array if array.size else array.reshape(array.shape + (0,) * (rank - array.ndim))
        for array in arrays
    ]


# -- refusals --------------------------------------------------------------------------------------

_NONE_REMEDY = (
    "None does not stack: leave such rows out with .filter_map, or, with .map, leave the component "
    "out or put a value in its place (readers of tables do with fill={...})"
)


def rows_differ(rows: Sequence[Any], at: str, i: int | None = None, first: int = 0) -> SpecMismatch:
    """Return the error for row ``i``, by default the first row that differs from row ``first``."""
    kind, spec = type(rows[first]), spec_of(rows[first])
    if i is None:
        i = next(
            number
            for number, x in enumerate(rows)
            if (type(x) is not kind or spec_of(x) != spec) and not are_one_dtype(rows[first], x)
        )
    other = spec_of(rows[i])
    described = [str(spec), str(other)]
    if described[0] == described[1]:  # then the classes differ
        described = [kind.__name__, type(rows[i]).__name__]
    if rows[first] is None or rows[i] is None:
        remedy = _NONE_REMEDY
    elif _are_of_libraries(rows[first], rows[i]):
        described = [_with_class(rows[first], spec), _with_class(rows[i], other)]
        remedy = "tensors and arrays do not stack together: make all of them arrays with .map"
    elif _is_ragged(spec, other):
        remedy = "ragged rows do not stack: padded_batch pads them, or make them alike with .map"
    elif isinstance(rows[first], np.generic) is not isinstance(rows[i], np.generic):
        remedy = _remedy_of_numbers(rows[first], rows[i])
    else:
        remedy = _MAKE_EQUAL
    return SpecMismatch(
        f"{at}: row {first} of the batch is {described[0]}, row {i} is {described[1]}; {remedy}"
    )


_MAKE_EQUAL = (
    "only equal dtypes and shapes stack (dtypes are never cast: make them equal with .map)"
)


def _are_of_libraries(a: object, b: object) -> bool:
    """Return True for a tensor beside an array, or beside a tensor of another class."""
    are_arrays = all(isinstance(x, (np.ndarray, np.generic)) or is_tensor(type(x)) for x in (a, b))
    return are_arrays and type(a) is not type(b) and (is_tensor(type(a)) or is_tensor(type(b)))


def _with_class(array: object, spec: Spec) -> str:
    kind = type(array)
    return f"{spec} ({kind.__module__.partition('.')[0]}.{kind.__name__})"


def _remedy_of_numbers(a: object, b: object) -> str:
    """Return the advice for a NumPy scalar beside a Python number."""
    scalar, number = (a, b) if isinstance(a, np.generic) else (b, a)
    dtype = dtype_of_scalar(number)
    if dtype is None or not isinstance(scalar, np.number | np.bool_):
        return _MAKE_EQUAL
    return (
        f"{type(number).__name__} stacks as {dtype}, and dtypes are never cast: make both alike "
        f"with .map, as by np.{scalar.dtype}(x) or {type(number).__name__}(x)"
    )


def _is_ragged(first: Spec, other: Spec) -> bool:
    """Return True if two arrays differ only in the sizes of their axes."""
    return (
        isinstance(first, ArraySpec)
        and isinstance(other, ArraySpec)
        and first.dtype == other.dtype
        and len(first.shape or ()) == len(other.shape or ()) > 0
    )


def unstackable(what: str, at: str) -> SpecMismatch:
    """The error for a value that is not an array, number or text."""
    if what == "NoneType":
        return SpecMismatch(f"{at}: {_NONE_REMEDY}")
    if what in ("date", "datetime", "timedelta"):
        kind = "timedelta64" if what == "timedelta" else "datetime64"
        return SpecMismatch(
            f"{at}: {what} does not stack, np.{kind} does: make one with .map, as by "
            f"np.{kind}(x, 'us'), or declare it where a file is read"
        )
    return SpecMismatch(
        f"{at}: {what} does not stack; arrays, numbers, text, and lists of them do. Make it one "
        f"of them or leave it out with .map, or stack it with batch(n, collate=...)"
    )


def unstackable_objects(dtype: np.dtype[Any], at: str) -> SpecMismatch:
    """The error for an array whose memory holds references: to objects, or to text."""
    if dtype.kind == "T":
        return SpecMismatch(
            f"{at}: an array of {_objects_of(dtype)} does not stack, a list of text does: make one "
            f"with .map(lambda x: x.tolist()), or stack it with batch(n, collate=...)"
        )
    return unstackable(f"an array of {_objects_of(dtype)}", at)


def _objects_of(dtype: np.dtype[Any]) -> str:
    return "NumPy's StringDType" if dtype.kind == "T" else "Python objects"


def unstackable_list(what: str, at: str) -> SpecMismatch:
    """The error for a list of values that do not stack, such as tuples, dicts or records."""
    if what == "NoneType":
        return SpecMismatch(f"{at} is a list of None; {_NONE_REMEDY}")
    return SpecMismatch(
        f"{at} is a list of {what}, which does not stack; lists of numbers, of arrays and of text "
        f"do. Make arrays of it with .map, or stack it with batch(n, collate=...)"
    )


def _mixed(kinds: set[type], where: str) -> SpecMismatch:
    """The error for a list whose items are of several types."""
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    remedy = (
        "a list stacks only if its items are of one type: make it an array with .map, or with "
        ".map(tuple) a tuple, whose components stack one by one"
    )
    if all(issubclass(kind, (*NUMBERS, np.number, np.bool_)) for kind in kinds):
        remedy += ", e.g. np.array(items, np.float64)"
    elif type(None) in kinds:
        remedy = "None does not stack: put a value in its place with .map"
    return SpecMismatch(f"{where} is a list that holds {names}; {remedy}")

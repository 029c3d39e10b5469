"""Columns: arrays of equal length in dicts and tuples, whose entries are rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec, ValueSpec, spec_of
from flowdsl.elements.structure import IS_MASKED, from_dlpack, is_masked, is_tensor, remade
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.ops.refused_items import is_of_arrow, refuse_labels

AnyArray: TypeAlias = np.ndarray[Any, Any]
Column: TypeAlias = AnyArray | list[Any]
"""A component of all rows."""
Columns: TypeAlias = "NDArray[Any] | dict[str, Columns] | tuple[Columns, ...]"
"""Arrays of equal length; the arrays of a dict or tuple are the components of its rows."""


@attrs.frozen(eq=False, repr=False)
class ArrayRows:
    """The rows of arrays of equal length, as tuples and dicts of entries."""

    columns: Columns
    row: Callable[[int], Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "row", _reader(self.columns))

    def __len__(self) -> int:
        return len(next(arrays_of(self.columns))[1])

    def __getitem__(self, i: int) -> Any:
        return self.row(i)


def _reader(columns: Columns) -> Callable[[int], Any]:
    """Return a function that reads a row by its number."""
    if isinstance(columns, tuple):
        readers = [_reader(part) for part in columns]
        return lambda i: tuple([read(i) for read in readers])
    if isinstance(columns, dict):
        named = [(name, _reader(part)) for name, part in columns.items()]
        return lambda i: {name: read(i) for name, read in named}
    if columns.dtype.hasobject and columns.ndim == 1:
        return lambda i: read_only(columns[i])
    return columns.__getitem__


def map_columns(func: Callable[[Column], Column], columns: Any) -> Any:
    """Apply a function to the arrays and lists in nested tuples and dicts, which keep their class.

    >>> map_columns(lambda column: column[:1], {"x": [1, 2], "y": ([3, 4],)})
    {'x': [1], 'y': ([3],)}
    """
    if isinstance(columns, dict):
        # A call for each of many columns would take longer than the function.
        return {
            name: func(part) if type(part) is np.ndarray else map_columns(func, part)
            for name, part in columns.items()
        }
    if isinstance(columns, tuple):
        return remade(type(columns), {str(k): map_columns(func, x) for k, x in enumerate(columns)})
    return func(columns)


def rows_of(items: Any) -> Any:
    """The rows of a dict or tuple of arrays; anything else unchanged."""
    columns = _columns(dict(items) if isinstance(items, Mapping) else items)
    arrays = list(arrays_of(columns)) if isinstance(columns, tuple | dict) else []
    for path, part in arrays:
        refuse_labels(f"from_items: column {path}", part)
    if not arrays:
        _refuse_masks_and_keys(columns)
        return columns if _is_of_text(items) else items
    if isinstance(columns, tuple) and not all(_is_array_with_rows(part) for _, part in arrays):
        lists = [path for path, part in arrays if isinstance(part, list)]
        if lists and any(_is_array_with_rows(part) for _, part in arrays):
            raise InvalidFlow(
                f"from_items: if one column is an array, all must be, but {lists[0]} is a list; "
                f"np.asarray(...) makes an array of it. If these {len(columns)} values are "
                f"themselves the elements, pass a list: from_items([a, b])"
            )
        return items
    _refuse_masks_and_keys(columns)
    _check_columns(arrays)
    return ArrayRows(columns)


def _check_columns(arrays: list[tuple[str, Any]]) -> None:
    """Refuse a dict or tuple whose arrays do not form rows."""
    for name, value in arrays:
        if not _is_array_with_rows(value):
            axes = " without an axis" if isinstance(value, np.ndarray) else ""
            raise InvalidFlow(
                f"from_items: the values of a dict must be arrays with rows, but {name} is "
                f"{type(value).__name__}{axes}; np.asarray(...) makes an array of a sequence"
            )
    if len({len(array) for _, array in arrays}) > 1:
        lengths = ", ".join(f"{name} has {len(array)}" for name, array in arrays)
        raise InvalidFlow(
            f"from_items: the arrays of a dict or tuple must be equally long, but {lengths}; if "
            f"the arrays are themselves the elements, pass a list: from_items([a, b])"
        )


def _columns(items: Any, path: str = "items") -> Any:
    """The arrays as plain dicts and tuples, with tensors of other libraries replaced by arrays.

    Raises:
        SpecMismatch: NumPy cannot read a tensor; the message begins with its path.
    """
    if isinstance(items, dict):
        return {name: _columns(part, f"{path}[{name!r}]") for name, part in items.items()}
    if isinstance(items, tuple):
        return tuple(_columns(part, f"{path}[{k}]") for k, part in enumerate(items))
    if is_tensor(type(items)):
        try:
            return read_only(from_dlpack(items))
        except SpecMismatch as error:  # for an array of Arrow, ``refuse_tables`` has better advice
            if not is_of_arrow(items):
                raise SpecMismatch(f"from_items: {path}: {error}") from error.__cause__
    if _is_of_text(items):
        items = _as_str(items)
    return read_only(items) if isinstance(items, np.ndarray) else items


def _refuse_masks_and_keys(columns: object, path: str = "items") -> None:
    """Refuse columns whose rows would lose a mask, or would have keys that are not text."""
    if isinstance(columns, dict):
        not_text = [key for key in columns if not isinstance(key, str)]
        if not_text:
            raise InvalidFlow(f"from_items: the keys of a dict must be text, got {not_text[0]!r}")
        for name, part in columns.items():
            _refuse_masks_and_keys(part, f"{path}[{name!r}]")
    elif isinstance(columns, tuple):
        for k, part in enumerate(columns):
            _refuse_masks_and_keys(part, f"{path}[{k}]")
    elif is_masked(columns):
        raise InvalidFlow(f"from_items: {path} {IS_MASKED}")


def arrays_of(columns: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays with their paths, such as "y.0"; also values that are not arrays."""
    if not isinstance(columns, tuple | dict):
        yield path, columns
        return
    parts = columns.items() if isinstance(columns, dict) else enumerate(columns)
    for name, part in parts:
        yield from arrays_of(part, f"{path}.{name}" if path else str(name))


def spec_of_row(columns: Columns, probe: bool) -> Spec:
    """The spec of a row. Texts differ in length, although an array has one dtype for all."""
    if isinstance(columns, tuple | dict):
        parts = columns.items() if isinstance(columns, dict) else enumerate(columns)
        fields = tuple((str(name), spec_of_row(part, probe)) for name, part in parts)
        return StructSpec(dict if isinstance(columns, dict) else tuple, fields)
    if columns.ndim > 1:
        return ArraySpec(columns.dtype, columns.shape[1:])
    if columns.dtype.kind == "O":
        return spec_of(columns[0]) if probe and len(columns) else UNKNOWN
    if columns.dtype.kind in "SU":  # each scalar has a dtype of its own length
        return ValueSpec(columns.dtype.type)
    return ArraySpec(columns.dtype.newbyteorder("="), ())  # a scalar has native byte order


def _is_of_text(value: object) -> bool:
    """Return True for an array of NumPy's ``StringDType``: text of any length."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "T"


def _as_str(texts: AnyArray) -> AnyArray:
    """Return text of any length as ``str``; if its rows are arrays, as text of one width."""
    if texts.ndim < 2 or hasattr(texts.dtype, "na_object"):  # some may be missing
        return texts.astype(object)
    width = int(np.strings.str_len(texts).max(initial=1))
    return texts.astype(f"U{width}")


def _is_array_with_rows(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0

"""Conversion of Arrow columns to the values of elements.

==============================  ============================================================
column type                     is read as
==============================  ============================================================
bool, intN, uintN, floatN       NumPy scalars of that dtype; as Python's ``bool``, ``int`` or
                                ``float`` where the element declares these
string, binary (also large)     ``str``, ``bytes``
timestamp, date, duration       ``np.datetime64`` or ``np.timedelta64`` of the column's unit; as
                                Python's ``datetime`` or ``date`` where the element declares these
lists of numbers                arrays of one dimension; Python lists where declared ``list[...]``
lists of one size, tensors      arrays of that shape
other lists, structs            lists and dicts of Python values
a dictionary of values          the values
decimal, time, map and others   as by pyarrow's ``to_pylist``
null                            None
==============================  ============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from types import NoneType
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.numbers import dtype_of_number
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    ListSpec,
    Spec,
    StructSpec,
    ValueSpec,
    is_known,
    spec_of,
)
from flowdsl.errors import SourceError
from flowdsl.storage.libraries import library

Values: TypeAlias = Callable[[int, int], list[Any]]
"""Returns the decoded values of a column from one row to another."""


def _not_stacked(start: int, end: int) -> None:
    return None


@attrs.frozen
class Decoded:
    """The decoded values of a column, by row."""

    values: Values
    stacked: Callable[[int, int], NDArray[Any] | list[Any] | None] = _not_stacked
    """Returns the values from one row to another, stacked; None if they have to be stacked one by
    one, for example because one is null."""


NULL_ITEM = "it has an array with an item that is null"

_SHARED_BYTES = 1 << 16
"""The limit on memory that arrays of consecutive rows share."""

_OF_PANDAS = {
    "pandas.period": "periods of pandas, which would be read as bare numbers; convert them to "
    "times, such as frame[name].dt.to_timestamp(), or to text, such as frame[name].astype(str)",
    "pandas.interval": "intervals of pandas, which would be read without their closed side; split "
    "them into two columns, frame[name].array.left and frame[name].array.right",
}
"""The contents of a column of an extension type of pandas, and how to convert it."""


def refuse_types_of_pandas(field: Any) -> None:
    """Refuse a column whose storage alone does not have the meaning of its values.

    Raises:
        SourceError: It has periods or intervals of pandas.
    """
    # A type that pandas has not registered in this program is recorded in the metadata alone.
    stored = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode(errors="replace")
    name = getattr(field.type, "extension_name", stored)
    if name in _OF_PANDAS:
        raise SourceError(f"it has {_OF_PANDAS[name]}")


def spec_of_column(form: Any, wanted: Spec = UNKNOWN) -> Spec:
    """Return the spec of the values of a column of this Arrow type, if ``wanted`` is declared."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    if types.is_dictionary(form):
        return spec_of_column(form.value_type, wanted)
    if (time := _python_time(form)) is not None and wanted == ValueSpec(time):
        return wanted
    dtype = _dtype(form)
    if dtype is not None:
        value = _python(dtype)
        return ValueSpec(value) if wanted == ValueSpec(value) else ArraySpec(dtype, ())
    shape = _shape(form)
    if shape is not None and not (isinstance(wanted, ListSpec) and len(shape) == 1):
        return ArraySpec(_dtype(_storage(form).value_type), shape)
    return in_python(form)


def spec_of_filled(form: Any, fill: Any, wanted: Spec = UNKNOWN) -> Spec:
    """Return the spec of a column's values if ``fill`` replaces nulls.

    A column that has only nulls has the spec of the fill value.
    """
    types = library("pyarrow.types", "from_parquet", "parquet")
    if not types.is_null(form):
        return spec_of_column(form, wanted)
    return wanted if wanted != UNKNOWN else spec_of(fill)


def joined(forms: Iterable[Any], wanted: Spec = UNKNOWN) -> Any | None:
    """Return one of the types that a column has in several files; None if values are not alike.

    Values are alike if they are read with one spec: ``string`` and ``large_string``, or ``float``
    and ``double`` if Python's ``float`` is declared. A column of nulls joins any other.
    """
    types = library("pyarrow.types", "from_parquet", "parquet")
    typed = [form for form in dict.fromkeys(forms) if not types.is_null(form)]
    if not typed:
        return library("pyarrow", "from_parquet", "parquet").null()
    kinds = {(spec_of_column(form, wanted), is_instant(form)) for form in typed}
    alike = len(typed) == 1 or (len(kinds) == 1 and all(is_known(spec) for spec, _ in kinds))
    return typed[0] if alike else None


def is_instant(form: Any) -> bool:
    """Return True for times with a time zone, which are instants and not local times."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    return bool(types.is_timestamp(form) and form.tz is not None)


def in_python(form: Any) -> Spec:
    """Return the spec of a column's values as Python values, as ``to_pylist`` returns them."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    form = _storage(form)
    if types.is_dictionary(form):
        return in_python(form.value_type)
    if is_list(form):
        size = form.list_size if types.is_fixed_size_list(form) else None
        return ListSpec(in_python(form.value_type), size)
    if types.is_struct(form):
        fields = [form.field(i) for i in range(form.num_fields)]
        return StructSpec(dict, tuple((f.name, in_python(f.type)) for f in fields))
    kinds: list[tuple[Any, type]] = [
        (types.is_boolean, bool),
        (types.is_integer, int),
        (types.is_floating, float),
        (types.is_string, str),
        (types.is_large_string, str),
        (types.is_string_view, str),
        (types.is_binary, bytes),
        (types.is_large_binary, bytes),
        (types.is_binary_view, bytes),
        (types.is_fixed_size_binary, bytes),
        (types.is_decimal, Decimal),
        (types.is_date, date),
        (types.is_time, time),
    ]
    return next((ValueSpec(kind) for is_it, kind in kinds if is_it(form)), UNKNOWN)


def _dtype(form: Any) -> np.dtype[Any] | None:
    """Return the dtype of a column of numbers or times; None for other columns."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    if types.is_boolean(form):
        return np.dtype(np.bool_)
    if types.is_integer(form) or types.is_floating(form):  # Arrow's to_pandas_dtype may need pandas
        kind = "f" if types.is_floating(form) else "u" if types.is_unsigned_integer(form) else "i"
        return np.dtype(f"{kind}{form.bit_width // 8}")
    if types.is_timestamp(form):
        return np.dtype(f"M8[{form.unit}]")
    if types.is_duration(form):
        return np.dtype(f"m8[{form.unit}]")
    if types.is_date(form):
        return np.dtype("M8[D]" if types.is_date32(form) else "M8[ms]")
    return None


def _python(dtype: np.dtype[Any]) -> type:
    """Return the Python class that represents all numbers of a dtype."""
    return {"b": bool, "i": int, "u": int, "f": float}.get(dtype.kind, NoneType)


def _python_time(form: Any) -> type | None:
    """Return the Python class of the days or times of a column; None for other columns."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    return date if types.is_date(form) else datetime if types.is_timestamp(form) else None


def is_map(form: Any) -> bool:
    """Return True for lists of keys with their values."""
    return bool(library("pyarrow.types", "from_parquet", "parquet").is_map(form))


def python_number(form: Any) -> type | None:
    """Return the Python class of the numbers of a column; None for other columns."""
    dtype = _dtype(form)
    kind = NoneType if dtype is None else _python(dtype)
    return None if kind is NoneType else kind


def is_list(form: Any) -> bool:
    """Return True for lists of any length, and of one."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    return bool(types.is_list(form) or types.is_large_list(form) or types.is_fixed_size_list(form))


def _storage(form: Any) -> Any:
    """Return the storage type of an extension type, such as the lists of a tensor."""
    return getattr(form, "storage_type", form)


def _shape(form: Any) -> tuple[int | None, ...] | None:
    """Return the shape of a column of arrays; None for other columns."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    stored = _storage(form)
    if not is_list(stored) or _dtype(stored.value_type) is None:
        return None
    if not types.is_fixed_size_list(stored):
        return (None,)
    shape = getattr(form, "shape", [stored.list_size])
    order = getattr(form, "permutation", None) or range(len(shape))
    if list(order) != list(range(len(shape))):
        raise SourceError(f"a tensor whose axes are in the order {order} is not supported")
    return tuple(shape)


def decoded(column: Any, wanted: Spec, fill: Any = None) -> Decoded:
    """Decode a column; ``fill``, unless None, replaces nulls.

    Its values raise a SourceError for an array with an item that is null.
    """
    pa = library("pyarrow", "from_parquet", "parquet")
    if pa.types.is_dictionary(column.type):
        if spec_of_column(column.type) in (ValueSpec(str), ValueSpec(bytes)):
            return _words(column, fill)
        column = column.cast(column.type.value_type)
    if fill is not None and pa.types.is_null(column.type):
        value = pa.array(np.array([fill]) if isinstance(fill, np.generic) else [fill])[0]
        column = pa.chunked_array([pa.repeat(value, len(column))])
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no chunk, or more than one array can hold
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    spec = spec_of_column(array.type, wanted)
    array = getattr(array, "storage", array)
    if isinstance(spec, ArraySpec) and spec.shape != ():
        return _arrays(array, spec, _present(array))
    # Python has no nanoseconds; a cast that would lose some is an error.
    if isinstance(spec, ValueSpec) and spec.type is datetime:
        array = array.cast(pa.timestamp("us", array.type.tz))
    elif pa.types.is_time64(array.type):
        array = array.cast(pa.time64("us"))
    elif _dtype(array.type) is not None and spec != ValueSpec(date):
        return _numbers(array, spec, fill)
    if fill is not None:
        array = array.fill_null(fill)

    def values(start: int, end: int) -> list[Any]:
        items: list[Any] = array.slice(start, end - start).to_pylist()
        return items

    if spec not in _TEXTS:
        return Decoded(values)
    return Decoded(values, _texts(values) if array.null_count else values)


def has_null_items(column: Any) -> bool:
    """Return True if a column of arrays has an item that is null, in any row."""
    if _shape(column.type) is None:
        return False
    chunks = (getattr(chunk, "storage", chunk) for chunk in column.chunks)
    return any(chunk.flatten().null_count for chunk in chunks)


def _present(array: Any) -> Any:
    """Return a mask: False for each null, True for other values; None if there are no nulls."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


_TEXTS = (ValueSpec(str), ValueSpec(bytes))


def _texts(values: Values) -> Callable[[int, int], list[Any] | None]:
    def stacked(start: int, end: int) -> list[Any] | None:
        texts = values(start, end)
        return None if None in texts else texts

    return stacked


def _words(column: Any, fill: Any) -> Decoded:
    """Decode dictionary-encoded text: rows share the text objects, which may be long."""
    pa = library("pyarrow", "from_parquet", "parquet")
    array = column.unify_dictionaries().combine_chunks()
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    words = [fill, *(chunks[0].dictionary.to_pylist() if chunks else [])]
    codes = [chunk.indices.cast(pa.int64()).fill_null(-1).to_numpy() for chunk in chunks]
    numbers = np.concatenate([np.zeros(0, np.int64), *codes]) + 1

    def values(start: int, end: int) -> list[Any]:
        return [words[k] for k in numbers[start:end].tolist()]

    return Decoded(values, _texts(values))


def _flat(array: Any, dtype: np.dtype[Any], fill: Any = None) -> Any:
    """Return numbers or times as one NumPy array.

    Nulls of numbers have the value ``fill``, if it is of this dtype; others have arbitrary values.
    """
    pa = library("pyarrow", "from_parquet", "parquet")
    if dtype.kind in "mM":
        bits = 32 if array.type == pa.date32() else 64
        array = array.view(pa.int32() if bits == 32 else pa.int64())
    if array.null_count:
        value = False if pa.types.is_boolean(array.type) else 0
        array = array.fill_null(fill if _fits(fill, dtype) else value)
    flat = array.to_numpy(zero_copy_only=False)
    return flat.astype(dtype) if dtype.kind in "mM" else flat


def _fits(fill: Any, dtype: np.dtype[Any]) -> bool:
    return isinstance(fill, np.generic) and dtype.kind not in "mM" and fill.dtype == dtype


def _numbers(array: Any, spec: Spec, fill: Any) -> Decoded:
    dtype = _dtype(array.type)
    assert dtype is not None
    flat = _flat(array, dtype, fill)
    present = None if _fits(fill, dtype) else _present(array)
    python = isinstance(spec, ValueSpec)
    if isinstance(spec, ValueSpec):
        dtype = dtype_of_number(spec.type)
    if fill is not None and present is not None:
        whole = flat.astype(dtype) if np.can_cast(flat.dtype, dtype) else flat
        flat, present = np.where(present, whole, fill), None
    to_list: Callable[[Any], list[Any]] = np.ndarray.tolist if python else list

    def values(start: int, end: int) -> list[Any]:
        return _with_nulls(to_list(flat[start:end]), present, start, end)

    if not np.can_cast(flat.dtype, dtype):  # an unsigned int may be too large
        return Decoded(values)
    return Decoded(values, _slices(flat, dtype, present))


def _with_nulls(values: list[Any], present: Any, start: int, end: int) -> list[Any]:
    """Return the values of rows, with None for each that is not ``present``."""
    if present is None:
        return values
    mask = present[start:end].tolist()
    return [x if is_present else None for x, is_present in zip(values, mask, strict=True)]


def _slices(
    flat: Any, dtype: np.dtype[Any], present: Any
) -> Callable[[int, int], NDArray[Any] | None]:
    """Return slices of an array, in another dtype; None where a value is null."""
    if present is None and flat.dtype == dtype:
        return lambda start, end: flat[start:end].copy()  # a view would keep the row group

    def stacked(start: int, end: int) -> NDArray[Any] | None:
        if present is not None and not present[start:end].all():
            return None
        array: NDArray[Any] = flat[start:end].astype(dtype)
        return array

    return stacked


def _arrays(array: Any, spec: ArraySpec, present: Any) -> Decoded:
    pa = library("pyarrow", "from_parquet", "parquet")
    assert spec.dtype is not None
    assert spec.shape is not None
    items = array.flatten()  # without the items of null rows
    flat = _flat(items, spec.dtype)
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(array.type):
        arrays = _of_one_shape(flat.reshape(-1, *spec.shape), present)
    else:
        arrays = _of_any_length(flat, lengths, present)
    if not items.null_count:
        return arrays
    has_null = np.zeros(len(array), np.bool_)
    rows = np.repeat(np.arange(len(array)), lengths)
    has_null[rows[~items.is_valid().to_numpy(zero_copy_only=False)]] = True
    return _without(arrays, has_null, _python(spec.dtype) if len(spec.shape) == 1 else NoneType)


def _without(arrays: Decoded, has_null: NDArray[np.bool_], kind: type) -> Decoded:
    """Refuse the rows that have an array with an item that is null."""

    def values(start: int, end: int) -> list[Any]:
        if has_null[start:end].any():
            advice = f"; declare list[{kind.__name__} | None]" if kind is not NoneType else ""
            raise SourceError(f"{NULL_ITEM}{advice}")
        return arrays.values(start, end)

    def stacked(start: int, end: int) -> Any:
        return None if has_null[start:end].any() else arrays.stacked(start, end)

    return Decoded(values, stacked)


def _of_one_shape(table: Any, present: Any) -> Decoded:
    """Decode arrays of one shape, stacked in ``table`` without a row for a null."""
    before = None if present is None else np.concatenate([[0], np.cumsum(present)])

    def values(start: int, end: int) -> list[Any]:
        if before is None or present is None:
            return _rows_of(table[start:end])
        rows = iter(_rows_of(table[before[start] : before[end]]))
        return [next(rows) if is_present else None for is_present in present[start:end]]

    return Decoded(values, _slices(table, table.dtype, None) if present is None else _not_stacked)


def _rows_of(table: Any) -> list[Any]:
    return list(_own(table)) if table.nbytes <= _SHARED_BYTES else [_own(row) for row in table]


def _of_any_length(flat: Any, lengths: Any, present: Any) -> Decoded:
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def values(start: int, end: int) -> list[Any]:
        some = flat[offsets[start] : offsets[end]]
        cuts = (offsets[start : end + 1] - offsets[start]).tolist()
        pairs = pairwise(cuts)
        if some.nbytes <= _SHARED_BYTES:
            own = _own(some)
            arrays = [own[a:b] for a, b in pairs]
        else:
            arrays = [_own(some[a:b]) for a, b in pairs]
        return _with_nulls(arrays, present, start, end)

    def stacked(start: int, end: int) -> NDArray[Any] | None:
        sizes = lengths[start:end]
        if present is not None or (sizes != sizes[0]).any():
            return None
        table: NDArray[Any] = flat[offsets[start] : offsets[end]].reshape(len(sizes), sizes[0])
        return table.copy()

    return Decoded(values, stacked)


def _own(view: Any) -> Any:
    """Copy an array: a view would keep the whole row group in memory."""
    array = view.copy()
    array.flags.writeable = False
    return array

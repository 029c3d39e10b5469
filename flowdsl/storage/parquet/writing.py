"""write_parquet: a column for each component of the elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any

import attrs
import msgspec
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Finite
from flowdsl.elements.nbytes import nbytes_of
from flowdsl.elements.specs import UNKNOWN, ArraySpec, ListSpec, Spec, StructSpec, ValueSpec
from flowdsl.errors import SpecMismatch
from flowdsl.nodes import FlowBase, checked_int
from flowdsl.storage.libraries import library
from flowdsl.storage.parquet.files import ABOUT, SEAL, UNSEALED, VERSION, About, seal
from flowdsl.storage.paths import OnePath
from flowdsl.storage.values import components_to_store, is_array, is_ml_dtype, is_scalar
from flowdsl.storage.writing import spec_without_rows, write_file

_DAY = np.dtype("M8[D]")
_TIME_DTYPES = (_DAY.str[1:], *(f"{kind}8[{unit}]" for kind in "mM" for unit in ("ms", "us", "ns")))
"""The time types that Parquet has."""

_MAX_AXES = 63
"""A row group becomes one array, and NumPy's have at most 64 axes."""
_GROUP_BYTES = 1 << 26
"""A row group that reaches this size is written."""
_VALUE = "element"
"""The column name for elements without components."""


def write(
    flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False, row_group: int = 4096
) -> int:
    """Write the elements of a flow, as its method ``write_parquet`` does."""
    library("pyarrow.parquet", "write_parquet", "parquet")
    rows_per_group = checked_int("write_parquet: row_group", row_group, 1)
    return write_file(
        "write_parquet",
        flow,
        path,
        overwrite,
        lambda to, rows: _File(to, rows_per_group, lambda: spec_without_rows(flow)).write(rows),
    )


class _File:
    """A Parquet file that is being written."""

    def __init__(
        self, path: Path, rows_per_group: int, spec_without_rows: Callable[[], Spec]
    ) -> None:
        self._path, self._rows_per_group = path, rows_per_group
        self._spec_without_rows = spec_without_rows
        self._form = "value"
        self._types: dict[str, ColumnType] = {}
        """The types of columns as known so far: a column may have contained only None."""
        self._rows: dict[str, list[Any]] = {}
        self._missing: set[str] = set()
        self._groups = 0
        self._schema: Any = None
        """The columns of the file on disk."""
        self._sink: Any = None
        self._writer: Any = None

    def write(self, rows: Iterable[object]) -> None:
        try:
            self._write(rows)
        except BaseException:
            if self._writer is not None:
                self._writer.is_open = False  # else its finalizer writes to the sink
            raise
        finally:
            if self._sink is not None:
                self._sink.close()
        seal(self._path)

    def _write(self, rows: Iterable[object]) -> None:
        count = size = 0
        for row in rows:
            self._add(row)
            count, size = count + 1, size + nbytes_of(row)
            if count >= self._rows_per_group or size >= _GROUP_BYTES:
                self._write_group()
                count = size = 0
        if self._schema is None and not count:
            self._begin_without_rows(self._spec_without_rows())
        elif count:
            self._write_group()
        writer: Any = self._writer
        # The digests and the seal (a digest of the footer) have placeholders here; ``seal``
        # overwrites them when the file is complete.
        writer.add_key_value_metadata({ABOUT: self._about(), SEAL: UNSEALED})
        writer.close()

    def _add(self, row: object) -> None:
        parts = components_to_store(row, "element")
        form = "value" if parts is None else "tuple" if isinstance(row, tuple) else "dict"
        values = {_VALUE: row} if parts is None else dict(parts)
        if not self._types:
            self._begin(form, values)
        if form != self._form:
            raise SpecMismatch(
                f"element: this row is a {form}, earlier rows are a {self._form}; all rows must be "
                f"of one form"
            )
        if values.keys() != self._types.keys():
            raise SpecMismatch(
                f"element: row has columns {', '.join(map(repr, values))}, earlier rows have "
                f"{', '.join(map(repr, self._types))}; all rows must have the same columns"
            )
        for name, value in values.items():
            at = "element" if form == "value" else f"element.{name}"
            seen, known = column_type_of(value, at), self._types[name]
            if seen is NO_VALUE_TYPE:
                self._missing.add(name)
            if seen != known:
                self._types[name] = common_type(known, seen, at)
            self._rows[name].append(value)

    def _begin(self, form: str, values: dict[str, Any]) -> None:
        if not values:
            raise SpecMismatch("element: it has no components, and so no columns")
        _check_names(values)
        self._form = form
        for name, value in values.items():
            at = "element" if form == "value" else f"element.{name}"
            self._types[name], self._rows[name] = column_type_of(value, at), []

    def _begin_without_rows(self, spec: Spec) -> None:
        """Open a file of no rows, with the columns that the spec determines."""
        if isinstance(spec, StructSpec):
            self._form = "tuple" if issubclass(spec.form, tuple) else "dict"
            types = {name: _column_type_known(part) for name, part in spec.fields}
            with suppress(SpecMismatch):  # names that no row could have
                _check_names(types)
                self._types = types
        elif spec != UNKNOWN:
            self._types = {_VALUE: _column_type_known(spec)}
        self._open(self._schema_known())

    def _schema_known(self) -> Any:
        pa = library("pyarrow", "write_parquet", "parquet")
        return pa.schema([(name, arrow_type(kind)) for name, kind in self._types.items()])

    def _write_group(self) -> None:
        pa = library("pyarrow", "write_parquet", "parquet")
        schema = self._schema_known()
        if self._schema is None:
            self._open(schema)
        elif schema != self._schema:
            self._rewrite(schema)
        columns = [column_of(self._rows[name], kind) for name, kind in self._types.items()]
        table = pa.Table.from_arrays(columns, schema=schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._groups += 1
        for values in self._rows.values():
            values.clear()

    def _open(self, schema: Any) -> Any:
        self._schema = schema
        self._sink = library("pyarrow", "write_parquet", "parquet").OSFile(str(self._path), "wb")
        self._writer = library("pyarrow.parquet", "write_parquet", "parquet").ParquetWriter(
            self._sink,
            schema,
            use_dictionary=[n for n, k in self._types.items() if k.value in (str, bytes)],
            write_page_checksum=True,
        )
        return self._writer

    def _rewrite(self, schema: Any) -> None:
        """Rewrite the row groups after a column that contained only None got a type."""
        pq = library("pyarrow.parquet", "write_parquet", "parquet")
        self._writer.close()
        self._sink.close()
        before = self._path.rename(self._path.with_name(f"{self._path.name}.before"))
        try:
            writer: Any = self._open(schema)
            with pq.ParquetFile(before) as file:
                for k in range(self._groups):
                    table = file.read_row_group(k)
                    for j, field in enumerate(schema):
                        if table.schema.field(j).type != field.type:
                            table = table.set_column(j, field, table.column(j).cast(field.type))
                    writer.write_table(table, row_group_size=table.num_rows)
        finally:
            before.unlink()

    def _about(self) -> bytes:
        numbered = list(enumerate(self._types.items()))
        return msgspec.json.encode(
            About(
                version=VERSION,
                form=self._form,
                python=[k for k, (_, kind) in numbered if kind.python],
                missing=[k for k, (name, _) in numbered if name in self._missing],
                digests="0" * (16 * self._groups * len(numbered)),
            )
        )


# -- columns ---------------------------------------------------------------------------------------


@attrs.frozen
class ColumnType:
    """The type of a column's values: a Python class or a dtype, of scalars, arrays or lists."""

    value: type | np.dtype[Any] | None = attrs.field(eq=lambda value: (type(value), value))
    """None if all values were None or empty lists. Note that ``np.dtype("int64") == int``."""
    shape: tuple[int, ...] | None = ()
    """The shape of arrays; None for arrays of one dimension and any length."""
    is_list: bool = False

    def __str__(self) -> str:
        label = "None" if self.value is None else getattr(self.value, "__name__", f"{self.value}")
        if isinstance(self.value, np.dtype):
            label = f"np.{label}"
        if self.is_list:
            return f"list[{label}]"
        shape = "[?]" if self.shape is None else str(list(self.shape)) if self.shape else ""
        return f"{label}{shape}"

    @property
    def python(self) -> bool:
        """True if values are read as Python values."""
        return self.is_list or not isinstance(self.value, np.dtype)


NO_VALUE_TYPE = ColumnType(None)
_TYPES_OF_PYTHON: dict[type, ColumnType] = {
    kind: ColumnType(kind) for kind in (bool, int, float, str, bytes)
} | {NoneType: NO_VALUE_TYPE}
_DATE_TYPE = ColumnType(date)
"""Not among the types of Python: lists of dates cannot be written."""
_NUMPY_TIMES: dict[type, str] = {
    datetime: "np.datetime64(value, 'us'), without a time zone",
    timedelta: "np.timedelta64(value, 'us')",
}
"""The classes of times that cannot be written, and the equal values that can."""


def column_type_of(value: object, at: str) -> ColumnType:
    """Return the type of a column that can store this value.

    Raises:
        SpecMismatch: A column cannot store the value; the message begins with the component's name.
    """
    known = _TYPES_OF_PYTHON.get(type(value))
    if known is not None:
        _check(value, at)
        return known
    if is_scalar(value):
        return ColumnType(_stored_dtype(value, at))
    if is_array(value):
        dtype = _stored_dtype(value, at)
        if value.ndim == 1:
            return ColumnType(dtype, None)
        if value.ndim > _MAX_AXES:
            raise SpecMismatch(
                f"{at}: an array of {value.ndim} axes cannot be written: at most {_MAX_AXES} can"
            )
        if value.size == 0 or value.ndim == 0:
            raise SpecMismatch(f"{at}: an array of shape {value.shape} cannot be written")
        return ColumnType(dtype, value.shape)
    if type(value) is list:
        kinds = {_TYPES_OF_PYTHON.get(type(item)) for item in value}
        if len(kinds) > 1 or None in kinds or NO_VALUE_TYPE in kinds:
            raise SpecMismatch(f"{at}: list items must be all bool, int, float, str or bytes")
        for item in value:
            _check(item, at)
        return ColumnType(next(iter(kinds)).value if kinds else None, is_list=True)  # type: ignore[union-attr]  # None is not in them
    if type(value) is date:
        return _DATE_TYPE
    instead = next((text for kind, text in _NUMPY_TIMES.items() if isinstance(value, kind)), None)
    advice = "" if instead is None else f"; map it to {instead}"
    raise SpecMismatch(
        f"{at}: {type(value).__name__} cannot be written; bool, int, float, str, bytes, None, "
        f"date, NumPy scalars, arrays, and lists of the first five can{advice}"
    )


def _column_type_known(spec: Spec) -> ColumnType:
    """Return the type of a column for values of this spec; of None if it is not determined."""
    with suppress(SpecMismatch):
        if isinstance(spec, ArraySpec) and spec.dtype is not None and spec.shape is not None:
            if len(spec.shape) == 1:
                return column_type_of(np.zeros(0, spec.dtype), "element")
            if None not in spec.shape:
                shape = tuple(size for size in spec.shape if size is not None)
                one = np.broadcast_to(np.zeros((), spec.dtype), shape)  # it may be large
                return column_type_of(one if shape else one[()], "element")
        if isinstance(spec, ListSpec) and isinstance(spec.item, ValueSpec):
            item = _TYPES_OF_PYTHON.get(spec.item.type, NO_VALUE_TYPE)
            return ColumnType(item.value, is_list=True)
        if isinstance(spec, ValueSpec):
            return (
                _DATE_TYPE if spec.type is date else _TYPES_OF_PYTHON.get(spec.type, NO_VALUE_TYPE)
            )
    return NO_VALUE_TYPE


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if type(name) is not str:
            raise SpecMismatch(f"element: columns are named with text, and not {name!r}")
        _check(name, "element")


def _check(value: object, at: str) -> None:
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise SpecMismatch(f"{at}: {value} cannot be written: ints must fit into 64 bits")
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise SpecMismatch(f"{at}: text that is not Unicode cannot be written") from error


def _stored_dtype(value: np.generic | NDArray[Any], at: str) -> np.dtype[Any]:
    dtype = value.dtype
    is_time = dtype.str[1:] in _TIME_DTYPES
    is_number = dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8)
    is_number = is_number and not is_ml_dtype(dtype)
    if not dtype.isnative or not (is_time or is_number):
        advice = "; map text of NumPy to str" if dtype.kind == "U" else ""
        raise SpecMismatch(
            f"{at}: {dtype} cannot be written; bool, integers, float16 to float64, days, and times "
            f"in ms, us or ns can, in this machine's byte order{advice}"
        )
    days = value.view(np.int64) if dtype == _DAY else 0
    if np.any(days < -(2**31)) or np.any(days >= 2**31):
        raise SpecMismatch(
            f"{at}: NaT, and days 2**31 or more from 1970, cannot be written as days"
        )
    return dtype


def common_type(known: ColumnType, seen: ColumnType, at: str) -> ColumnType:
    """Return the column type that can store values of both types.

    Raises:
        SpecMismatch: There is no such type.
    """
    if known == seen or (seen is NO_VALUE_TYPE and known.shape in ((), None)):
        return known
    if known is NO_VALUE_TYPE and seen.shape in ((), None):
        return seen
    if known.is_list and seen.is_list and None in (known.value, seen.value):
        return known if seen.value is None else seen
    raise SpecMismatch(f"{at}: {seen}, and {known} in earlier rows; a column has one type")


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column."""
    pa = library("pyarrow", "write_parquet", "parquet")
    python: dict[object, Any] = {None: pa.null(), bool: pa.bool_(), int: pa.int64()}
    python |= {float: pa.float64(), str: pa.string(), bytes: pa.binary(), date: pa.date32()}
    dtype = kind.value if isinstance(kind.value, np.dtype) else None
    item = python[kind.value] if dtype is None else pa.from_numpy_dtype(dtype)
    if kind.is_list or kind.shape is None:
        return pa.list_(item)
    return pa.fixed_shape_tensor(item, list(kind.shape)) if kind.shape else item


def column_of(values: Sequence[Any], kind: ColumnType) -> Any:
    """Convert values to an Arrow column."""
    pa = library("pyarrow", "write_parquet", "parquet")
    arrow = arrow_type(kind)
    if not isinstance(kind.value, np.dtype):
        return pa.array(values, arrow)
    missing = np.array([x is None for x in values], bool)
    mask = pa.array(missing) if missing.any() else None
    if kind.shape is None:
        sizes = [0 if x is None else len(x) for x in values]
        arrays = [x for x in values if x is not None]
        flat = np.concatenate(arrays) if arrays else np.zeros(0, kind.value)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        if offsets[-1] >= 2**31:
            raise SpecMismatch(
                "the arrays of a row group have 2**31 items or more; pass a smaller row_group"
            )
        return pa.ListArray.from_arrays(
            pa.array(offsets.astype(np.int32)), _numbers_of(flat), type=arrow, mask=mask
        )
    if kind.shape:
        size = int(np.prod(kind.shape))
        lists = pa.FixedSizeListArray.from_arrays(_numbers_of(np.stack(values).reshape(-1)), size)
        return pa.ExtensionArray.from_storage(arrow, lists)
    nothing = np.zeros((), kind.value)[()]
    filled = [nothing if x is None else x for x in values] if mask else values
    return _numbers_of(np.array(filled, kind.value), missing if mask else None)


def _numbers_of(flat: Any, missing: Any = None) -> Any:
    pa = library("pyarrow", "write_parquet", "parquet")
    if flat.dtype.kind not in "mM":
        return pa.array(flat, mask=missing)
    arrow, numbers = pa.from_numpy_dtype(flat.dtype), flat.view(np.int64)
    if flat.dtype == _DAY:
        numbers = numbers.astype(np.int32)
    return pa.array(numbers, mask=missing).view(arrow)  # NaT is stored as a time, not as null

"""Tables in memory, of pandas, Polars, Arrow and others: sources of rows and of slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from flowdsl.effects import Exact
from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import IndexedSource, Sliceable, frozen_node
from flowdsl.storage.libraries import library
from flowdsl.storage.parquet.columns import (
    NULL_ITEM,
    Decoded,
    decoded,
    has_null_items,
    refuse_types_of_pandas,
    spec_of_column,
)
from flowdsl.storage.read_ahead import by_number
from flowdsl.storage.rows_of_columns import gatherer, maker

_ROWS_AHEAD = 1024
"""The number of rows that are built together if they are read in order."""


@attrs.frozen
class TableColumn:
    """A column of a table in memory."""

    name: str
    values: Decoded
    spec: Spec


@frozen_node
class FromTable(IndexedSource[dict[str, Any]], Sliceable[dict[str, Any], Exact]):
    """The rows of a table in memory, as dicts."""

    in_memory: ClassVar[bool] = True
    columns: tuple[TableColumn, ...] = attrs.field(eq=id)
    count: int

    @property
    def shared_by_threads(self) -> bool:
        return True

    @property
    def title(self) -> str:
        return f"from_items({self.count} rows)"

    @property
    def length(self) -> int:
        return self.count

    def spec(self, probe: bool) -> StructSpec:
        return StructSpec(dict, tuple((column.name, column.spec) for column in self.columns))

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.columns]

    def open(self) -> Callable[[int], dict[str, Any]]:
        make = maker("dict", self._names, self.spec(False))

        def rows(i: int, in_order: bool) -> list[Any]:
            end = min(i + _ROWS_AHEAD, self.count) if in_order else i + 1
            return make([column.values.values(i, end) for column in self.columns])

        return by_number(rows)

    def open_spans(self) -> Callable[[int, int], Any] | None:
        gathered = gatherer("dict", self._names, self.spec(False))
        if gathered is None:
            return None

        def span(start: int, stop: int) -> Any:
            columns = [column.values.stacked(start, stop) for column in self.columns]
            return None if any(column is None for column in columns) else gathered(columns)

        return span


def table_source(table: Any) -> FromTable:
    """Return the source of the rows of a table.

    Raises:
        InvalidFlow: Its columns have no names, or equal ones, or cannot be read.
        MissingLibrary: It has columns that are not NumPy's, and pyarrow is not installed.
    """
    names: list[Any] = list(getattr(table, "column_names", None) or table.columns)
    if not names:
        raise InvalidFlow("from_items: the table has no columns, so its rows have no components")
    for name in names:
        if not isinstance(name, str):
            raise InvalidFlow(f"from_items: columns of a table must be named by text, got {name!r}")
        if names.count(name) > 1:
            raise InvalidFlow(f"from_items: the table has two columns {name!r}")
    arrays = _arrays_of(table, names)
    others = [name for name in names if name not in arrays]
    arrow: Any = _arrow_of(table, others) if others else None
    columns = [
        _column_of_array(name, arrays[name])
        if name in arrays
        else _column_of_arrow(arrow.schema.field(name), arrow.column(name))
        for name in names
    ]
    count = len(next(iter(arrays.values()))) if arrays else arrow.num_rows
    return FromTable(tuple(columns), count)


def _arrays_of(table: Any, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns of a data frame that are arrays: Arrow would read their NaNs as nulls."""
    if not hasattr(type(table), "iloc"):
        return {}
    dtypes = {name: table[name].dtype for name in names}
    return {
        name: read_only(table[name].to_numpy())
        for name, dtype in dtypes.items()
        if isinstance(dtype, np.dtype) and dtype.kind in "biufcmM" and dtype.isnative
    }


def _arrow_of(table: Any, names: Sequence[str]) -> Any:
    """Return these columns as a table of Arrow."""
    pa = library("pyarrow", "from_items", "parquet")
    if hasattr(type(table), "iloc"):
        table = table[list(names)]
    is_arrow = isinstance(table, pa.Table | pa.RecordBatch)
    try:
        if is_arrow or hasattr(type(table), "__arrow_c_stream__") or hasattr(type(table), "iloc"):
            # Without ``select``, the index of a data frame may be a further column.
            return pa.table(table).select(list(names))
        interchange = library("pyarrow.interchange", "from_items", "parquet")
        return interchange.from_dataframe(table).select(list(names))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidFlow(
            f"from_items: a {type(table).__name__} cannot be read as a table of Arrow: {error}"
        ) from error


def _column_of_array(name: str, array: Any) -> TableColumn:
    values = Decoded(
        values=lambda start, end: list(array[start:end]),
        stacked=lambda start, end: array[start:end],
    )
    return TableColumn(name, values, ArraySpec(array.dtype, ()))


def _column_of_arrow(field: Any, column: Any) -> TableColumn:
    pa = library("pyarrow", "from_items", "parquet")
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    try:
        refuse_types_of_pandas(field)
        if has_null_items(chunked):
            raise SourceError(NULL_ITEM)
        spec = UNKNOWN if chunked.null_count else spec_of_column(chunked.type)
        return TableColumn(field.name, decoded(chunked, UNKNOWN), spec)
    except (SourceError, pa.ArrowException, ValueError) as error:
        raise InvalidFlow(f"from_items: column {field.name!r} cannot be read: {error}") from error

"""write_csv: rows as RFC 4180 records that ``from_csv`` reads back unchanged."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

import numpy as np

from flowdsl.effects import Finite
from flowdsl.elements.specs import Spec, StructSpec
from flowdsl.elements.structure import components
from flowdsl.errors import SpecMismatch
from flowdsl.nodes import FlowBase
from flowdsl.storage.compression import compression_of_name, created
from flowdsl.storage.csv.cells import SCALARS
from flowdsl.storage.csv.times import text_of_time
from flowdsl.storage.paths import OnePath
from flowdsl.storage.text.lines import BOM, encoded
from flowdsl.storage.values import components_to_store
from flowdsl.storage.writing import spec_without_rows, write_file


def write(flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Write the elements of a flow, as its method ``write_csv`` does."""

    def writes(partial: Path, elements: Iterable[object]) -> None:
        _write(partial, elements, lambda: _names_known(spec_without_rows(flow)))

    return write_file("write_csv", flow, path, overwrite, writes)


def _write(
    path: Path, elements: Iterable[object], names_without_rows: Callable[[], tuple[str, ...]]
) -> None:
    table: _Table | None = None
    with created(path, compression_of_name(path.name)) as file:
        for element in elements:
            if table is None:
                table = _Table(*_columns_of(element))
                file.write(table.header)
            file.write(table.record(element))
        if table is None and (known := names_without_rows()):
            file.write(_Table(known, is_named=True).header)


def _columns_of(element: object) -> tuple[tuple[str, ...], bool]:
    """Return the column names of an element, and True if a header is written for them."""
    parts = components_to_store(element, "element")
    if not parts:
        raise SpecMismatch(
            f"element: a row is a NamedTuple, record, dict or tuple of at least one cell, got "
            f"{type(element).__name__}; make it a tuple with .map"
        )
    if not all(type(name) is str for name, _ in parts):
        raise SpecMismatch(f"element: columns are named by text, got {[name for name, _ in parts]}")
    return tuple(name for name, _ in parts), type(element) is not tuple


class _Table:
    """Formats elements as lines of a table, and checks that their columns are equal."""

    def __init__(self, names: tuple[str, ...], is_named: bool) -> None:
        self._names, self._is_named = names, is_named
        self._empty: dict[str, object] = {}
        self._line = io.StringIO()
        self._writer = csv.writer(self._line)

    @property
    def header(self) -> bytes:
        return self._encoded(self._names, self._names) if self._is_named else b""

    def record(self, element: object) -> bytes:
        """Return the line of an element."""
        names, is_named = _columns_of(element)
        if is_named != self._is_named or (names != self._names and {*names} != {*self._names}):
            raise SpecMismatch(
                f"element: its columns are {list(names)}, the columns of earlier rows are "
                f"{list(self._names)}"
            )
        values = dict(components(element) or ())
        return self._encoded([self._cell(name, values[name]) for name in self._names], self._names)

    def _cell(self, name: str, value: object) -> str:
        text = _text_of(value, name)
        if not text and self._empty.setdefault(name, value) != value:
            raise SpecMismatch(
                f"element.{name}: a column cannot hold both None and '', as both are an empty cell"
            )
        return text

    def _encoded(self, texts: Sequence[str], names: Sequence[str]) -> bytes:
        if texts[0].startswith(BOM):
            raise SpecMismatch(
                f"element.{names[0]}: the first cell must not begin with '\\ufeff', which would be "
                f"read as the byte order mark of the file"
            )
        self._line.seek(0)
        self._line.truncate()
        self._writer.writerow(texts)
        try:
            return self._line.getvalue().encode()
        except UnicodeEncodeError:
            for text, name in zip(texts, names, strict=True):
                encoded(text, f"element.{name}")
            raise


def _text_of(value: object, name: str) -> str:
    """Return the text of a cell, which is read back as the same value of the same type.

    Raises:
        SpecMismatch: A cell cannot hold the value.
    """
    if type(value) in (str, np.str_):
        return cast("str", value)[:]  # str(value) would end before a NUL
    if value is None:
        return ""
    if type(value) is bool or isinstance(value, np.bool_):
        return "true" if value else "false"
    if type(value) is float:
        return repr(value)
    if type(value) is int or type(value) in SCALARS:
        return _digits(value, name)
    if type(value) is datetime and value.fold and value.tzinfo is None:
        raise SpecMismatch(
            f"element.{name}: a cell cannot hold fold=1, the later of two equal local times; give "
            f"it a time zone, as value.astimezone() does"
        )
    if (text := text_of_time(value)) is not None:
        return text
    raise SpecMismatch(
        f"element.{name}: a cell holds text, a number, a bool, a date, a datetime or None, got "
        f"{_kind_of(value)}; write arrays and nested elements in another format, or .map them"
    )


def _digits(number: object, name: str) -> str:
    try:
        return str(number)
    except ValueError as error:
        raise SpecMismatch(f"element.{name}: {error}") from error


def _kind_of(value: object) -> str:
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return f"NaT of {value.dtype} (None can be written)"
        return f"{value.dtype} (np.datetime64(x, 'us') can be written)"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    return type(value).__name__


def _names_known(spec: Spec) -> tuple[str, ...]:
    """Return the column names of rows of this spec; empty if the spec does not determine them."""
    if isinstance(spec, StructSpec) and spec.form is not tuple:
        return tuple(name for name, _ in spec.fields)
    return ()

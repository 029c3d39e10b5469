"""from_csv: tables of text, one row per record (RFC 4180)."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar, overload

import attrs
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import Spec, StructSpec
from flowdsl.errors import FlowError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import (
    READER_KEYWORD_ADVICE,
    ListOf,
    T,
    checked_names,
    frozen_node,
    rejects_keywords,
)
from flowdsl.storage.csv.cells import (
    CellRows,
    CellType,
    DeclaredCells,
    declared_cells,
    text_spec,
)
from flowdsl.storage.filling import Fill, checked_fill, value_for
from flowdsl.storage.paths import Paths, all_paths
from flowdsl.storage.text.blocks import FromBlocks, reader
from flowdsl.storage.text.decoding import checked_encoding, decoded, decoded_by_row
from flowdsl.storage.text.indexing import TextFile, text_file
from flowdsl.storage.text.opening import TextCompression, checked_compression
from flowdsl.storage.text.syntax import Syntax

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")


@attrs.frozen
class _Dialect:
    """The characters that structure a file, and its encoding."""

    delimiter: str
    quote: str | None
    encoding: str
    comment: str | None
    escape: str | None
    skips_spaces: bool
    decimal: str

    @property
    def keeps_empty_lines(self) -> bool:
        return False

    @property
    def syntax(self) -> Syntax | None:
        """The syntax that determines where rows end; None if each line is a row."""
        if self.quote is None and self.escape is None and self.comment is None:
            return None
        return Syntax(self.delimiter, self.quote, self.escape, self.comment, self.skips_spaces)

    def parse(self, data: bytes, skip: int = 0) -> list[list[str]]:
        """Parse a block of bytes into records, each a list of cells."""
        records = self._records(data)[skip:]
        if b"\r\r" in data and any(map(_ends_twice, records)):
            raise ValueError(_LONE_RETURN)
        with _size_allowed(max(map(len, records), default=0)):
            cells = csv.reader(
                records,
                delimiter=self.delimiter,
                quotechar=self.quote,
                quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
                escapechar=self.escape,
                skipinitialspace=self.skips_spaces,
                strict=True,
            )
            try:
                return list(cells)  # fewer than the records if a quote is not closed
            except csv.Error as error:
                raise ValueError(self._reason(str(error), records)) from error

    def _records(self, data: bytes) -> list[str]:
        syntax = self.syntax
        if syntax is not None and not syntax.has_only_quotes:
            return decoded_by_row(data, self.encoding, syntax)
        records = decoded(data, self.encoding, syntax)
        if "" in records or "\r" in records:
            return [record for record in records if record not in ("", "\r")]
        return records

    def _reason(self, message: str, records: Sequence[str]) -> str:
        """Translate a message of the ``csv`` module into what is wrong with the file."""
        if message.startswith("new-line character") and any(map(_LONE.search, records)):
            return _LONE_RETURN
        if message.startswith("unexpected end") and self.quote is None:
            return f"it ends with the escape character {self.escape!r}"
        is_about_quotes = message.startswith(("new-line character", "unexpected end"))
        if not is_about_quotes and "expected after" not in message:
            return message
        is_escaped = self.escape is None and any(f"\\{self.quote}" in text for text in records)
        return (
            f"{_QUOTE}; escapechar='\\\\' reads \\{self.quote} as a quote" if is_escaped else _QUOTE
        )


_LONE = re.compile(r"\r(?!\n|\Z)")
_LONE_RETURN = "a carriage return in it is not in quotes"
_QUOTE = (
    "a quoted cell in it has a quote that is not doubled; double the quotes in a quoted cell; "
    "quotechar=None reads quotes as characters"
)


def _ends_twice(record: str) -> bool:
    """Return True if a record ends in two carriage returns, which ``csv`` reads as one."""
    return record.rstrip("\n").endswith("\r\r")


_size_lock = Lock()


@contextmanager
def _size_allowed(size: int) -> Iterator[None]:
    """Let the ``csv`` module parse cells of this size, and then set its limit back.

    The whole process has one limit, and the program may have set it.
    """
    with _size_lock:  # another thread may have raised the limit for a moment
        is_allowed = size <= csv.field_size_limit()
    if is_allowed:
        yield
        return
    with _size_lock:
        limit = csv.field_size_limit(size)
        try:
            yield
        finally:
            csv.field_size_limit(limit)


def _forked() -> None:
    """Replace the lock, which another thread may have held during a fork."""
    global _size_lock
    _size_lock = Lock()


if hasattr(os, "register_at_fork"):  # not every system can fork
    os.register_at_fork(after_in_child=_forked)


@attrs.frozen
class _Records(Generic[T]):
    """Parses blocks of bytes into rows: the dialect, and the conversion of records to rows."""

    dialect: _Dialect
    rows: CellRows[T]

    @property
    def keeps_empty_lines(self) -> bool:
        return self.dialect.keeps_empty_lines

    @property
    def syntax(self) -> Syntax | None:
        return self.dialect.syntax

    def parse(self, data: bytes, skip: int = 0) -> list[T]:
        return self.rows.rows(self.dialect.parse(data, skip))


@frozen_node
class FromCsv(FromBlocks[T], Generic[T]):
    """The source of ``from_csv``: the rows of CSV files, by index."""

    records: _Records[T]
    row_spec: Spec
    header: bool

    @property
    def options(self) -> str:
        rows = self.records.rows
        fills = [cell.fill for cell in rows.cells]
        filled = "" if fills.count(None) == len(fills) else f" {fills}"
        return f"{self.records.dialect} {rows.chosen} {self.header}{filled}"

    @property
    def parser(self) -> _Records[T]:
        return self.records

    @property
    def operator(self) -> str:
        return "from_csv"

    @property
    def skip(self) -> int:
        return int(self.header)

    def spec(self, probe: bool) -> Spec:
        return self.row_spec


@overload  # for calls with ``**options``: pyright does not know the names, and only this takes any
def from_csv(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]  # no value is a ``Never``
    paths: Paths, *, header: Never, **options: Any
) -> Flow[dict[str, str], Exact]: ...
@overload
def from_csv(
    paths: Paths,
    *,
    delimiter: str = ",",
    header: Literal[True] | None = None,
    columns: ListOf[str] | None = None,
    fill: Fill | None = None,
    encoding: str = "utf-8",
    quotechar: str | None = '"',
    comment: str | None = None,
    escapechar: str | None = None,
    skipinitialspace: bool = False,
    compression: TextCompression = "infer",
) -> Flow[dict[str, str], Exact]: ...
@overload
def from_csv(
    paths: Paths,
    *,
    delimiter: str = ",",
    header: Literal[False],
    columns: None = None,
    fill: Fill | None = None,
    encoding: str = "utf-8",
    quotechar: str | None = '"',
    comment: str | None = None,
    escapechar: str | None = None,
    skipinitialspace: bool = False,
    compression: TextCompression = "infer",
) -> Flow[tuple[str, ...], Exact]: ...
@overload
def from_csv(
    paths: Paths,
    *,
    delimiter: str = ",",
    header: bool | None,
    columns: ListOf[str],
    fill: Fill | None = None,
    encoding: str = "utf-8",
    quotechar: str | None = '"',
    comment: str | None = None,
    escapechar: str | None = None,
    skipinitialspace: bool = False,
    compression: TextCompression = "infer",
) -> Flow[dict[str, str], Exact]: ...
@overload  # a flag whose value the types do not know
def from_csv(
    paths: Paths,
    *,
    delimiter: str = ",",
    header: bool | None,
    columns: ListOf[str] | None = None,
    fill: Fill | None = None,
    encoding: str = "utf-8",
    quotechar: str | None = '"',
    comment: str | None = None,
    escapechar: str | None = None,
    skipinitialspace: bool = False,
    compression: TextCompression = "infer",
) -> Flow[dict[str, str] | tuple[str, ...], Exact]: ...
@overload
def from_csv(
    paths: Paths,
    element: TypeForm[A],
    *,
    delimiter: str = ",",
    header: bool | None = None,
    columns: ListOf[str] | None = None,
    fill: Fill | None = None,
    encoding: str = "utf-8",
    quotechar: str | None = '"',
    decimal: Literal[".", ","] = ".",
    comment: str | None = None,
    escapechar: str | None = None,
    skipinitialspace: bool = False,
    compression: TextCompression = "infer",
) -> Flow[A, Exact]: ...
@rejects_keywords(  # type: ignore[misc]  # mypy never selects the first overload
    sep="write delimiter={}",
    usecols="write columns={}",
    names="write header=False, columns={}",
    dtype="declare the type of a row: from_csv(path, Row), where Row is a NamedTuple or TypedDict",
    schema="declare the type of a row: from_csv(path, Row), where Row is a NamedTuple or TypedDict",
    na_values="an empty cell is None where a component is declared as A | None; map others",
    nrows="write take({n}) after it",
    skiprows="write skip({n}) after it",
    chunksize="write batch({n}) after it",
    **READER_KEYWORD_ADVICE,
    compression_type="leave it out, as names and contents say it, or write compression='gzip'",
)
def from_csv(  # pyright: ignore[reportInconsistentOverload]  # as for mypy
    paths: Paths,
    element: Any = object,
    *,
    delimiter: str = ",",
    header: bool | None = None,
    columns: ListOf[str] | None = None,
    fill: Fill | None = None,
    encoding: str = "utf-8",
    quotechar: str | None = '"',
    decimal: Literal[".", ","] = ".",
    comment: str | None = None,
    escapechar: str | None = None,
    skipinitialspace: bool = False,
    compression: TextCompression = "infer",
) -> Flow[Any, Exact]:
    r"""Read the rows of one CSV file, or of several files with the same columns, in sequence.

    ``paths`` is a path or URL, a pattern such as ``"part-*.csv"``, whose files are sorted, or a
    list of these, in the listed order. Each file begins with a header, unless ``header=False``.
    Pass ``header`` if ``tuple[A, B]`` is declared and the first line could also be a row. A row is
    a dict of text, with the keys of the header or only those in ``columns``. Without a header, a
    row is a tuple of text, or a dict if ``columns`` names all cells.

    ``element`` declares the type of a row: a NamedTuple, record, dataclass or TypedDict, whose
    components are matched by name to the header, or else in the order of the columns; or a
    ``tuple[A, B]`` in the order of the columns. A component is ``str``, ``int``, ``float``,
    ``bool`` (``true``, ``false``, ``1``, ``0`` in any case), ``date``, ``datetime``, or a NumPy
    scalar, whose range is checked. Spaces around a number are ignored. Days and times are written
    as in ISO 8601, ``2024-01-31T12:30``; a ``datetime`` has a time zone where its cell has one, and
    a ``np.datetime64``, which batches need, is in microseconds. An empty cell is None for ``A |
    None``, and an error for a number or a time; ``fill={"age": 0.0}`` puts a value in the place of
    the empty cells of a column. Columns that the header names and ``element`` does not are skipped.

    A quoted cell may contain the delimiter, newlines, and doubled quotes. As in ``csv.reader``, a
    quote that does not begin a cell is an ordinary character, and with ``quotechar=None`` all
    quotes are. Empty lines are skipped, as in ``csv.DictReader``, and so are lines that begin with
    the character ``comment``. The character after ``escapechar`` is an ordinary one, as a quote in
    ``"5\\" wide"``. With ``skipinitialspace=True``, spaces at the beginning of a cell are ignored,
    as before the quote in ``1, "a"``. ``decimal=","`` reads ``1,5`` where a float is declared.

    Rows are accessible by index, and files may be compressed by gzip, as in ``from_text``. An
    ``encoding`` with shifts to other characters, such as ISO-2022-JP, is refused.

    Length: the number of rows, without the headers.

    Effects: none.

    Errors: ``InvalidFlow`` if ``header`` must be passed, and for a ``fill`` of a column that is not
    read, or of another type. ``SourceError`` when the flow is built, for a file that is missing,
    damaged, or compressed other than by gzip, a header that is empty or repeats a name, headers
    that differ, and a quote that is never closed, or closed only by a later line in the middle of a
    cell. ``SpecMismatch`` when the flow is built, if the header or none of the first ten rows
    matches ``element``. At the row, with file, line and column: ``SourceError`` for more or fewer
    cells than columns and for text that is not in the encoding; ``SpecMismatch`` for a cell of
    another type.

    >>> import flowdsl as fl, tempfile
    >>> from typing import NamedTuple
    >>> class Flower(NamedTuple):
    ...     name: str
    ...     petals: int
    ...     height: float | None
    >>> flowers = fl.from_items([Flower("rose, wild", 5, 1.5), Flower("lily", 6, None)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = flowers.write_csv(f"{folder}/a.csv")
    ...     fl.from_csv(f"{folder}/a.csv", Flower).collect()
    ...     fl.from_csv(f"{folder}/a.csv", columns=["petals"]).collect()
    [Flower(name='rose, wild', petals=5, height=1.5), Flower(name='lily', petals=6, height=None)]
    [{'petals': '5'}, {'petals': '6'}]

    A file of another program:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/b.csv", "w") as file:
    ...         _ = file.write('# in meters\nname; petals; height\n"5\\" rose"; 5; 1,5\n')
    ...     fl.from_csv(
    ...         f"{folder}/b.csv", Flower, delimiter=";", decimal=",", comment="#",
    ...         escapechar="\\", skipinitialspace=True,
    ...     ).collect()
    [Flower(name='5" rose', petals=5, height=1.5)]

    Source: RFC 4180; ``decode_csv`` of TensorFlow.

    Elsewhere: tensorpack none; tf.data ``CsvDataset``; Grain none; torchdata ``CSVParser``.
    """
    if header is not None and type(header) is not bool:
        raise InvalidFlow(f"from_csv: header must be True or False, got {header!r}")
    dialect = _dialect(
        delimiter, quotechar, encoding, comment, escapechar, skipinitialspace, decimal
    )
    compression = checked_compression("from_csv", compression)
    named = None if columns is None else checked_names("from_csv: columns", columns)
    declared = None if element is object else _declared(element, decimal)
    if declared is None and decimal != ".":
        raise InvalidFlow(
            "from_csv: decimal=',' is for floats that an element declares; without one, cells are "
            "text"
        )
    files = tuple(
        text_file(
            "from_csv",
            path,
            compression,
            dialect.syntax,
            dialect.encoding == "utf-8",
            keeps_empty_lines=False,
        )
        for path in all_paths("from_csv", paths)
    )
    first = _first_records(files, dialect)
    has_header = header is not False
    width, names = _columns(files, first, has_header, named, declared)
    rows, spec = _rows(files[0].path, width, names, named if has_header else None, declared)
    rows = _filled(rows, fill)
    if header is None and declared is not None and not declared.is_named:
        _check_is_header(files[0].path, rows, first[0] or [])
    source = FromCsv[Any](files, _Records(dialect, rows), spec, has_header)
    _check_first_rows(source, declared)
    return nodes.flow(source)


def _check_is_header(path: str, rows: CellRows[Any], record: list[str]) -> None:
    """Refuse a first line that could also be a row: an element without names cannot decide."""
    try:
        rows.rows([record])
    except (SpecMismatch, ValueError):
        return
    raise InvalidFlow(
        f"from_csv: the first line of {path!r} is {record}, which may be a header or a row; pass "
        f"header=True or header=False"
    )


def _dialect(
    delimiter: object,
    quote: object,
    encoding: object,
    comment: object,
    escape: object,
    skips_spaces: object,
    decimal: object,
) -> _Dialect:
    delimiter = _mark("delimiter", delimiter, "one ASCII character, such as ',' or '\\t'")
    marks = {"delimiter": delimiter}
    for name, given in (("quotechar", quote), ("comment", comment), ("escapechar", escape)):
        if given is not None:
            marks[name] = _mark(name, given, "one ASCII character, or None")
            same = next(other for other, mark in marks.items() if mark == given)
            if same != name:
                raise InvalidFlow(
                    f"from_csv: {name} must be a character that is not the {same}, got {given!r}"
                )
    if type(skips_spaces) is not bool:
        raise InvalidFlow(f"from_csv: skipinitialspace must be True or False, got {skips_spaces!r}")
    if decimal not in (".", ","):
        raise InvalidFlow(f"from_csv: decimal must be '.' or ',', got {decimal!r}")
    return _Dialect(
        delimiter,
        marks.get("quotechar"),
        checked_encoding("from_csv", encoding, "".join(marks.values())),
        marks.get("comment"),
        marks.get("escapechar"),
        skips_spaces,
        decimal,
    )


def _mark(name: str, text: object, wanted: str) -> str:
    if not isinstance(text, str) or not _is_mark(text):
        raise InvalidFlow(f"from_csv: {name} must be {wanted}, got {text!r}")
    return text


def _is_mark(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in "\r\n\0 "


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _declared(element: Any, decimal: str) -> DeclaredCells | None:
    from typing import get_args, get_origin

    if get_origin(element) is dict and get_args(element) == (str, str):
        return None
    return declared_cells(element, decimal)


def _first_records(files: Sequence[TextFile], dialect: _Dialect) -> list[list[str] | None]:
    """Return the first record of each file; None for a file without rows."""
    with _errors_when_built():
        return [reader([file], 0, dialect, "from_csv")(0) if file.rows else None for file in files]


@contextmanager
def _errors_when_built() -> Iterator[None]:
    """Add the operator's name to errors of rows that are read when the flow is built."""
    try:
        yield
    except FlowError as error:
        raise type(error)(f"from_csv: {error}") from error


def _columns(
    files: Sequence[TextFile],
    first: Sequence[list[str] | None],
    header: bool,
    named: tuple[str, ...] | None,
    declared: DeclaredCells | None,
) -> tuple[int, tuple[str, ...] | None]:
    """Return the number of cells in a record, and the column names if there are any."""
    if header:
        names = _header(files[0].path, first[0])
        for file, other in zip(files, first, strict=True):
            if other is None or tuple(other) != names:
                are_moved = other is not None and sorted(other) == sorted(names)
                raise SourceError(
                    f"from_csv: the header of {file.path!r} is {other}, and the header of "
                    f"{files[0].path!r} is {list(names)}: files that are read together must have "
                    f"the same columns{' in the same order' if are_moved else ''}"
                )
        return len(names), names
    if named is not None:
        return len(named), named
    if declared is not None:
        return len(declared.cells), tuple(declared.names) if declared.is_named else None
    return next((len(record) for record in first if record is not None), 0), None


def _header(path: str, record: list[str] | None) -> tuple[str, ...]:
    if record is None:
        raise SourceError(f"from_csv: {path!r} is empty: it has no header")
    if not record:
        raise SourceError(
            f"from_csv: {path!r} has no header: all of its lines are empty; header=False "
            f"reads a file without a header"
        )
    if twice := _twice(record):
        raise SourceError(
            f"from_csv: the header of {path!r} names {', '.join(map(repr, twice))} more than once; "
            f"with header=False its first line is a row"
        )
    return tuple(record)


def _rows(
    path: str,
    width: int,
    names: tuple[str, ...] | None,
    chosen: tuple[str, ...] | None,
    declared: DeclaredCells | None,
) -> tuple[CellRows[Any], StructSpec]:
    """Return the conversion of a file's records into rows, and the spec of the rows."""
    wanted = names
    if chosen is not None and names is not None:
        if missing := [name for name in chosen if name not in names]:
            raise InvalidFlow(
                f"from_csv: columns has {', '.join(map(repr, missing))}; the columns of {path!r} "
                f"are {list(names)}"
            )
        wanted = chosen
    if declared is None:
        form = tuple if wanted is None else dict
        spec = text_spec(form, wanted or [str(i) for i in range(width)])
        cells = (CellType(str),) * len(spec.fields)
    else:
        spec, cells = declared.spec, declared.cells
        if wanted is not None:
            wanted = _as_declared(path, wanted, declared, chosen is not None)
    numbers = range(width) if names is None else [names.index(name) for name in wanted or ()]
    labels = map(str, numbers) if names is None else map(repr, wanted or ())
    parts = tuple(name for name, _ in spec.fields)
    return CellRows(spec.form, parts, tuple(numbers), cells, width, tuple(labels)), spec


def _filled(rows: CellRows[Any], fill: Fill | None) -> CellRows[Any]:
    """Return the conversion of records in which empty cells are filled."""
    fills = checked_fill("from_csv", fill, rows.names)
    cells = tuple(
        attrs.evolve(cell, fill=value_for("from_csv", name, fills[name], cell.spec))
        if name in fills
        else cell
        for name, cell in zip(rows.names, rows.cells, strict=True)
    )
    return attrs.evolve(rows, cells=cells)


_DELIMITERS = ";", "\t", "|", ","


def _as_declared(
    path: str, wanted: tuple[str, ...], declared: DeclaredCells, are_chosen: bool
) -> tuple[str, ...]:
    """Return the columns in the order of the declared components.

    Columns that are not declared are skipped, unless they were chosen.
    """
    if not declared.is_named:
        if len(wanted) != len(declared.cells):
            advice = "" if are_chosen else "; choose with columns="
            has = "columns has" if are_chosen else f"{path!r} has"
            raise SpecMismatch(
                f"from_csv: {has} {len(wanted)} columns, {list(wanted)}, but {declared.spec} is "
                f"declared{advice}"
            )
        return wanted
    names = declared.names
    missing = [name for name in names if name not in wanted]
    more = [name for name in wanted if name not in names] if are_chosen or missing else []
    if missing or more:
        differences = f"; it has no {', '.join(map(repr, missing))}" if missing else ""
        if more:
            listed = ", ".join(map(repr, more))
            differences += f"; not declared: {listed}"
            differences += "" if missing else f", choose with columns={names}"
        for delimiter in _DELIMITERS:
            if len(wanted) == 1 and set(names) <= set(wanted[0].split(delimiter)):
                differences = f"; its cells are separated by {delimiter!r}: {delimiter=}"
        if are_chosen:
            differences = differences.replace("; it has no", "; columns has no")
        has = "columns is" if are_chosen else f"{path!r} has the columns"
        raise SpecMismatch(
            f"from_csv: {has} {list(wanted)}, but {declared.spec} is declared{differences}"
        )
    return tuple(names)


ROWS_CHECKED = 10
"""The number of first rows of which one must match the declared element, in a new flow."""


def _check_first_rows(source: FromCsv[Any], declared: DeclaredCells | None) -> None:
    """Refuse a declaration that none of the first rows matches, such as one for other columns.

    If some match, a row that does not is an error when it is read: ``on_error`` can skip it.
    """
    if declared is None or not source.length:
        return
    with _errors_when_built():
        read = source.open()
        for i in range(min(source.length, ROWS_CHECKED)):
            with suppress(FlowError):
                read(i)
                return
        try:
            read(0)
        except FlowError as error:
            if not isinstance(error, SpecMismatch):  # it cannot be read, whatever is declared
                raise
            count = min(source.length, ROWS_CHECKED)
            raise SpecMismatch(
                f"{error}; none of the first {count} rows matches what is declared, so nothing is "
                f"read: declare str | None for such a column, and convert it in map"
            ) from error

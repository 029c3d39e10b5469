"""from_parquet: tables in Parquet files, read by row group."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, overload

import attrs
import numpy as np
import xxhash
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.declared_specs import as_declared, names_classes, spec_of_type
from flowdsl.elements.hints import hints_of
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec
from flowdsl.elements.stacking import stack
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import (
    READER_KEYWORD_ADVICE,
    ListOf,
    Sliceable,
    T,
    checked_int,
    checked_names,
    frozen_node,
    rejects_keywords,
)
from flowdsl.storage.digests import Version, versions_of
from flowdsl.storage.file_source import ShardedSource, file_has_changed
from flowdsl.storage.filling import Fill, checked_fill, value_for
from flowdsl.storage.index import Shards
from flowdsl.storage.parquet.columns import (
    Decoded,
    decoded,
    in_python,
    is_instant,
    is_map,
    joined,
    python_number,
    refuse_types_of_pandas,
    spec_of_column,
    spec_of_filled,
)
from flowdsl.storage.parquet.declarations import (
    Declaration,
    as_dicts,
    in_classes,
    may_have_nulls_within,
    without_nulls_within,
)
from flowdsl.storage.parquet.files import ParquetFile
from flowdsl.storage.parquet.folders import Keys, keys_of, spec_of_key, values_of_key
from flowdsl.storage.paths import Paths, named_paths, title_of
from flowdsl.storage.read_ahead import by_number
from flowdsl.storage.rows_of_columns import gatherer, maker
from flowdsl.storage.schema import checked_against

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_GROUPS_KEPT = 2
"""The number of row groups that a reader caches: a window over rows alternates between two."""

_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1024, 1 << 20
"""The limits on the rows that are built together when rows are read in order."""


@attrs.frozen
class Column:
    """A column that is read."""

    name: str
    wanted: Spec
    """The spec that values are read as, as numbers may be read as Python's or NumPy's."""
    optional: bool
    """True if values may be None."""
    of_files: tuple[Any, ...] | None = None
    """The value in each file, if it is in the name of the file's folder."""
    fill: Any = None
    """The value that replaces nulls; None to keep them."""
    declared: Spec = UNKNOWN
    """The declared spec, which says where lists and structs may contain nulls."""
    of_dicts: bool = False
    """True if the entries of a map are read as a dict."""

    def __str__(self) -> str:
        text = self.name if self.of_files is None else f"{self.name}={self.of_files}"
        return text if self.fill is None else f"{text}, nulls {self.fill!r}"


@attrs.frozen
class ParquetPart:
    """The identity of one file: its path, digest and row groups."""

    path: str
    digest: str
    """The digest of the footer."""
    lengths: tuple[int, ...]
    """The number of rows in each row group."""
    version: Version | None
    """The version of a file whose columns have no digests."""

    @property
    def length(self) -> int:
        return sum(self.lengths)


@frozen_node
class FromParquet(ShardedSource[T], Sliceable[T, Exact], Generic[T]):
    """The source of ``from_parquet``: the rows of Parquet files, by index."""

    parts: tuple[ParquetPart, ...]
    columns: tuple[Column, ...]
    form: str
    row_spec: Spec
    max_bytes: int | None = None

    @property
    def title(self) -> str:
        return title_of("from_parquet", [part.path for part in self.parts])

    @property
    def fingerprint(self) -> str:
        digests = [(part.digest, part.version and part.version.digest) for part in self.parts]
        digest = xxhash.xxh3_64_hexdigest(repr(digests).encode())
        names = ", ".join(map(str, self.columns))
        return f"{self.title} of {self.length} rows {digest} of {names}"

    @property
    def rows_together(self) -> int | None:
        groups = [length for part in self.parts for length in part.lengths]
        return None if len(groups) <= _GROUPS_KEPT else max(groups)

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        return by_number(_Rows(self).rows)

    def open_spans(self) -> Callable[[int, int], Any] | None:
        gathered = gatherer(self.form, [c.name for c in self.columns], self.row_spec)
        if gathered is None:
            return None
        opened: list[_Rows] = []

        def span(start: int, stop: int) -> Any:
            try:
                if not opened:
                    opened.append(_Rows(self))
                columns = opened[0].span(start, stop)
            except Exception:  # the row that cannot be read raises its own error
                return None
            return None if columns is None else gathered(columns)

        return span


class _Rows:
    """The rows of the files, with the latest row groups cached in decoded form."""

    def __init__(self, source: FromParquet[Any]) -> None:
        self._source = source
        parts = source.parts
        self._files_and_groups = [
            (k, group) for k, part in enumerate(parts) for group in range(len(part.lengths))
        ]
        self._groups = Shards([length for part in parts for length in part.lengths])
        self._files: dict[int, ParquetFile] = {}
        self._kept: OrderedDict[int, tuple[list[Decoded], int]] = OrderedDict()
        """The results of ``_decoded`` by the number of the row group, the latest one at the end."""
        self._make = maker(source.form, [c.name for c in source.columns], source.row_spec)
        self._columns: list[Decoded] = []
        self._first = self._end = 0
        """The range of rows in the current row group."""
        self._at_once = 1
        self._file(0)  # fails at once if it was rewritten

    def rows(self, i: int, in_order: bool) -> list[Any]:
        """Return row ``i``, with some of the following rows if ``in_order``."""
        if not self._first <= i < self._end:
            self._load_group(i)
        start = i - self._first
        end = min(start + self._at_once, self._end - self._first) if in_order else start + 1
        try:
            return self._make([column.values(start, end) for column in self._columns])
        except Exception:  # a later row may have failed: read this one alone
            return self._make([column.values(start, start + 1) for column in self._columns])

    def span(self, start: int, stop: int) -> list[Any] | None:
        """Return the stacked columns of rows; None if some have to be read one by one."""
        parts: list[list[Any]] = []
        while start < stop:
            if not self._first <= start < self._end:
                self._load_group(start)
            first, end = self._first, min(stop, self._end)
            part = [column.stacked(start - first, end - first) for column in self._columns]
            if any(column is None for column in part):
                return None
            parts.append(part)
            start = end
        if len(parts) == 1:
            return parts[0]
        columns = [_joined(column) for column in zip(*parts, strict=True)]
        return None if any(column is None for column in columns) else columns

    def _load_group(self, i: int) -> None:
        n, j = self._groups.find(i)
        if n not in self._kept:
            while len(self._kept) >= _GROUPS_KEPT:
                self._kept.popitem(last=False)
            self._kept[n] = self._decoded(n)
        self._kept.move_to_end(n)
        self._columns, self._at_once = self._kept[n]
        self._first, self._end = i - j, i - j + self._groups.lengths[n]

    def _decoded(self, n: int) -> tuple[list[Decoded], int]:
        """Return the columns of a row group, and the number of rows to build at once."""
        k, group = self._files_and_groups[n]
        file = self._file(k)
        columns = self._source.columns
        table = file.table(group, [c.name for c in columns if c.of_files is None])
        with file.errors(f"has a row group {group} that cannot be read"):
            own = [
                self._column(table, column, file)
                if column.of_files is None
                else _constant(column.of_files[k])
                for column in columns
            ]
        at_once = _BYTES_AT_ONCE * max(1, table.num_rows) // max(1, table.nbytes)
        return own, max(1, min(at_once, _ROWS_AT_ONCE))

    def _column(self, table: Any, column: Column, file: ParquetFile) -> Decoded:
        stored = table.column(column.name)
        try:
            own = decoded(stored, column.wanted, column.fill)
            has_nulls = any(may_have_nulls_within(k, column.declared) for k in stored.chunks)
        except _UNREADABLE as error:
            raise _unreadable(file.path, column.name, error) from error

        unchecked = as_dicts(own.values) if column.of_dicts else own.values
        if has_nulls:
            unchecked = without_nulls_within(unchecked, column.declared, column.name)
        if column.optional and names_classes(column.declared):  # others are restored with the row
            unchecked = in_classes(unchecked, column.declared)

        def values(start: int, end: int) -> list[Any]:
            try:  # a context manager would take as long as the row
                return unchecked(start, end)
            except _UNREADABLE as error:
                raise _unreadable(file.path, column.name, error) from error
            except SpecMismatch as error:
                raise SpecMismatch(f"from_parquet: {file.path!r}: {error}") from error

        if column.optional or column.fill is not None or not stored.null_count:
            return Decoded(values, own.stacked)

        def present(start: int, end: int) -> list[Any]:
            some = values(start, end)
            if any(value is None for value in some):
                raise SpecMismatch(_null_message(file.path, column.name))
            return some

        return Decoded(present, own.stacked)

    def _file(self, k: int) -> ParquetFile:
        if k not in self._files:
            part = self._source.parts[k]
            file = ParquetFile("from_parquet", part.path, self._source.max_bytes)
            if (file.digest, file.lengths) != (part.digest, part.lengths):
                raise file_has_changed(part.path)
            if part.version is not None:
                part.version.guard(file.file)
            self._files[k] = file
        return self._files[k]


_UNREADABLE = (SourceError, ValueError, OverflowError)
"""Errors of values that cannot be read, which name neither the file nor the column."""


def _unreadable(path: str, name: str, error: Exception) -> SourceError:
    return SourceError(f"from_parquet: {path!r}: column {name!r} cannot be read: {error}")


def _constant(value: Any) -> Decoded:
    """Return the column of a value in the name of a folder."""

    def stacked(start: int, end: int) -> Any:
        return None if value is None else stack([value] * (end - start))

    return Decoded(lambda start, end: [value] * (end - start), stacked)


def _joined(parts: Sequence[Any]) -> Any:
    """Return the values of several row groups, one after another; None if they do not stack."""
    if isinstance(parts[0], list):
        return list(chain.from_iterable(parts))
    if len({part.shape[1:] for part in parts}) > 1:
        return None
    return np.concatenate(parts)


def _null_message(path: str, name: str) -> str:
    return (
        f"from_parquet: {path!r}: column {name!r} has a value that is null; declare that it may be "
        f"None, as with str | None, or fill nulls, fill={{{name!r}: ...}}"
    )


@overload
def from_parquet(
    paths: Paths,
    *,
    columns: ListOf[str] | None = None,
    fill: Fill | None = None,
    max_bytes: int | None = None,
) -> Flow[Any, Exact]: ...
@overload
def from_parquet(
    paths: Paths,
    element: TypeForm[A],
    *,
    columns: ListOf[str] | None = None,
    fill: Fill | None = None,
    max_bytes: int | None = None,
) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_parquet(
    paths: Paths,
    element: Any = object,
    *,
    columns: ListOf[str] | None = None,
    fill: Fill | None = None,
    max_bytes: int | None = None,
) -> Flow[Any, Exact]:
    """Read the rows of Parquet files: as dicts by column name, or as ``write_parquet`` wrote them.

    ``paths`` is a path, a pattern, a URL, or a list of these; files are read in the listed order
    and must have the same columns. ``columns`` selects the columns to read; files may differ in
    others. ``element`` declares the type of a row: a NamedTuple, record or TypedDict with the
    columns as its components. Only these columns are read.

    A column may be stored differently in the files if its values are read alike: ``string`` and
    ``large_string``, a column of nulls only beside any other, numbers of other widths if Python's
    ``int`` or ``float`` is declared.

    Names of folders such as ``year=2024`` are columns too, after those in the files, which take
    precedence: of folders below the one that contains all the files, and, with a pattern, below its
    leading folders without ``*``, ``?`` or ``[``. So ``data/*/*.parquet`` reads ``year`` from
    ``data/year=2024/0.parquet``, and that path alone does not. With ``element`` or ``columns`` such
    a column is read only if it is named there. Its values are ``np.int64`` if all are whole
    numbers, else ``str``, or as declared: ``str``, ``int``, ``float``, ``bool``, or NumPy's
    integers, floats up to ``float64`` and ``bool``.

    Numbers keep their dtype: a column of 32-bit integers is read as ``np.int32``, as batches need
    it. If Python's ``int``, ``float``, ``bool``, ``date`` or ``datetime`` is declared, rows have
    these types; a ``datetime`` has a time zone if the column has one. Text is ``str``, binary
    ``bytes``, a time ``np.datetime64``; a list of numbers is an array of one dimension (or a list,
    if declared), a tensor an array of its shape, a struct a dict, a map a list of pairs (or a dict,
    if declared).

    Nulls are None, which must be declared, ``name: str | None``, also within lists and structs,
    ``sizes: list[int | None]``, and does not stack in a batch.
    ``fill={"age": 0.0, "name": ""}`` puts a value in the place of the nulls of a column, which then
    has none.

    A ``batch`` above it copies slices of the columns, without making rows, where elements
    are dicts, tuples or NamedTuples of columns that stack: ``from_parquet(path).batch(256)``.

    A row group is decoded as a whole when its first row is read, and a process caches the last two,
    so memory depends on the size of row groups, not of the file. Reading in order is fast, but each
    shuffled row decodes a row group, as ``explain()`` notes: shuffle with ``.shuffle(block=n)``, or
    write with a small ``row_group``.

    A column of a row group that would take more than 256 MB and 256 times its bytes in the file is
    an error, as a damaged file could fill the memory; ``max_bytes`` sets another limit on the size
    of such a column.

    Every byte of a file written by ``write_parquet`` is verified. In other files, damage is
    detected if the program that wrote them added page checksums.

    Length: the number of rows in the files.

    Effects: none.

    Errors: ``InvalidFlow`` for a ``fill`` of a column that is not read, or that cannot have the
    value. ``SourceError`` when the flow is built, if a file is missing, damaged, has other
    columns than the first, or has pandas' periods or intervals; ``SpecMismatch`` when the flow is
    built, if the rows do not match ``element``, and at the row for an undeclared null;
    ``MissingLibrary`` without pyarrow.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [{"name": "one", "size": 1}, {"name": "two", "size": 2}]
    ...     _ = fl.from_items(rows).write_parquet(f"{folder}/rows.parquet")
    ...     fl.from_parquet(f"{folder}/rows.parquet", columns=["size"]).collect()
    [{'size': 1}, {'size': 2}]

    Source: Apache Parquet, and ``pyarrow.parquet``.

    Elsewhere: tensorpack none; tf.data none; Grain ``experimental.ParquetIterDataset``;
    torchdata ``ParquetDataFrameLoader``.
    """
    if max_bytes is not None:
        max_bytes = checked_int("from_parquet: max_bytes", max_bytes, 1)
    named = named_paths("from_parquet", paths)
    names = [name for _, files in named for name in files]
    files = [ParquetFile("from_parquet", name) for name in names]
    keys = list(map(_new_keys, files, keys_of(names, [given for given, _ in named])))
    known = _files_that_determine_columns(files)
    names, files = [names[k] for k in known], [files[k] for k in known]
    keys = [keys[k] for k in known]
    form = _form(files, element)
    chosen = _chosen(files[0], keys[0], columns, element)
    _check_alike(files, keys, chosen)
    if columns is None and _names_declared(files[0], element) is None:
        _check_nothing_more(files, keys, element)
    declared = _declared(element, form, chosen)
    fills = checked_fill("from_parquet", fill, chosen)
    columns_and_specs = [
        _column(files, keys, name, declared.get(name, Declaration()), fills.get(name))
        for name in chosen
    ]
    unnamed = form == "tuple" and all(name.isdecimal() for name in chosen)
    names_of_spec = map(str, range(len(chosen))) if unnamed else chosen
    read, specs = zip(*columns_and_specs, strict=True) if columns_and_specs else ((), ())
    fields = tuple(zip(names_of_spec, specs, strict=True))
    stored: Spec = StructSpec(tuple if form == "tuple" else dict, fields)
    if form == "value":
        stored = fields[0][1] if fields else UNKNOWN
    spec = checked_against("from_parquet", names[0], element, stored, optional_parts=True)
    versions = iter(versions_of([file.file for file in files if not file.is_verified]))
    parts = tuple(
        ParquetPart(
            file.path, file.digest, file.lengths, None if file.is_verified else next(versions)
        )
        for file in files
    )
    return nodes.flow(FromParquet[Any](parts, read, form, spec, max_bytes))


def _files_that_determine_columns(files: Sequence[ParquetFile]) -> list[int]:
    """Return the numbers of the files that determine the columns, and contain all rows.

    A file without rows may lack columns, or have columns that no row of the other files has.
    """
    numbered = list(enumerate(files))
    seen = [k for k, f in numbered if sum(f.lengths) or (f.types and not f.is_verified)]
    return seen or [k for k, file in numbered if file.types] or [0]


def _form(files: Sequence[ParquetFile], element: Any) -> str:
    """Return the form of rows; with declared names, tuples and dicts are read alike.

    Raises:
        SourceError: The files have rows of several forms.
    """
    first, forms = files[0], {file.form for file in files}
    if len(forms) == 1:
        return first.form
    if forms == {"tuple", "dict"} and all(_names_declared(file, element) for file in files):
        return "dict"
    other = next(file for file in files if file.form != first.form)
    raise SourceError(
        f"from_parquet: the rows of {other.path!r} were written as a {other.form}, those in "
        f"{first.path!r} as a {first.form}"
    )


def _new_keys(file: ParquetFile, keys: Keys) -> Keys:
    """Return the keys of a file's folders that are not columns in the file itself."""
    if file.form != "dict":  # its rows have no names, or only those that were written
        return {}
    return {name: text for name, text in keys.items() if name not in file.types}


def _chosen(
    file: ParquetFile, keys: Keys, columns: ListOf[str] | None, element: Any
) -> tuple[str, ...]:
    """Return the names of the columns to read: those in ``columns``, or else the declared ones.

    Raises:
        InvalidFlow: A column does not exist.
        SourceError: Two columns have the same name.
        SpecMismatch: A declared column does not exist.
    """
    names = [*file.schema.names, *keys]
    declared = _names_declared(file, element)
    if columns is not None:
        chosen = checked_names("from_parquet: columns", columns)
    elif declared is not None:
        chosen = declared
    else:
        chosen = (*file.schema.names, *_of_element(keys, element))
    for name in chosen:
        if names.count(name) > 1:
            raise SourceError(f"from_parquet: {file.path!r} has two columns {name!r}")
        if name not in names:
            kind = InvalidFlow if columns is not None else SpecMismatch
            suffix = "" if columns is not None else f"; declared {spec_of_type(element)}"
            raise kind(
                f"from_parquet: {file.path!r} has no column {name!r}, it has "
                f"{', '.join(map(repr, names)) or 'none, as a file of no rows may'}{suffix}"
            )
    return chosen


def _names_declared(file: ParquetFile, element: Any) -> tuple[str, ...] | None:
    """Return the columns that an element declares by name; None if it declares none by name."""
    spec = spec_of_type(element)
    if not isinstance(spec, StructSpec) or spec.form is tuple:
        return None
    fields = tuple(name for name, _ in spec.fields)
    # The rows of a tuple are matched by position, unless each of the names is a column.
    by_name = file.form == "dict" or (file.form == "tuple" and {*fields} <= {*file.schema.names})
    return fields if by_name else None


def _of_element(keys: Keys, element: Any) -> list[str]:
    """Return the keys that rows have: those that are declared, or all if no names are."""
    spec = spec_of_type(element)
    if not isinstance(spec, StructSpec) or spec.form is tuple:
        return list(keys)
    fields = [name for name, _ in spec.fields]
    return [name for name in keys if name in fields]


def _check_alike(files: Sequence[ParquetFile], keys: Sequence[Keys], chosen: Sequence[str]) -> None:
    """Check that all files have the chosen columns."""
    first = files[0]
    for file, own in zip(files, keys, strict=True):
        for name in chosen:
            if (name in own, name in file.types) != (name in keys[0], name in first.types):
                where = "a column" if name in first.types else "in the name of a folder"
                raise SourceError(
                    f"from_parquet: {file.path!r} has other columns than {first.path!r}: {name!r} "
                    f"is {_where(name, file, own)}, there it is {where}"
                )


def _where(name: str, file: ParquetFile, keys: Keys) -> str:
    if name in keys:
        return "in the name of a folder"
    return "a column" if name in file.types else "missing"


def _check_nothing_more(files: Sequence[ParquetFile], keys: Sequence[Keys], element: Any) -> None:
    first = [*files[0].schema.names, *keys[0]]
    for file, own in zip(files, keys, strict=True):
        names = [*file.schema.names, *_of_element(own, element)]
        if more := [name for name in names if name not in first]:
            raise SourceError(
                f"from_parquet: {file.path!r} has more columns than {files[0].path!r}: "
                f"{', '.join(map(repr, more))}; choose those to read with columns={first}"
            )


def _declared(element: Any, form: str, names: Sequence[str]) -> dict[str, Declaration]:
    """Return the declaration of each column, for the columns that have one."""
    if element is object:
        return {}
    if form == "value":
        return dict.fromkeys(names, Declaration.of(element))
    if get_origin(element) is tuple and Ellipsis not in get_args(element):
        return dict(zip(names, map(Declaration.of, get_args(element)), strict=False))
    whole, cls = spec_of_type(element), get_origin(element) or element
    if not isinstance(whole, StructSpec) or not isinstance(cls, type):
        return {}
    hints = hints_of(element)
    fields = [name for name, _ in whole.fields]
    pairs = zip(names if form == "tuple" else fields, fields, strict=False)
    return {name: Declaration.of(hints[field]) for name, field in pairs if field in hints}


def _column(
    files: Sequence[ParquetFile],
    keys: Sequence[Keys],
    name: str,
    declared: Declaration,
    fill: Any,
) -> tuple[Column, Spec]:
    """Return the description of a column to read, and the spec of its values.

    Raises:
        InvalidFlow: It cannot be filled with this value.
        SourceError: Its values differ from file to file, or have a type that is not supported.
        SpecMismatch: The column does not match its declaration, or contains nulls.
    """
    optional = declared.optional and fill is None
    if name in keys[0]:
        texts, paths = [own[name] for own in keys], [file.path for file in files]
        if fill is not None:
            fill = value_for("from_parquet", name, fill, spec_of_key(declared.spec, texts))
        values, spec = values_of_key(name, texts, paths, declared.spec, optional, fill)
        _check_declared(paths[0], name, spec, declared)
        return Column(name, declared.spec, optional, values), spec
    for file in files:
        try:
            refuse_types_of_pandas(file.schema.field(name))
        except SourceError as error:
            raise _unreadable(file.path, name, error) from error
    wanted = declared.spec
    if wanted == UNKNOWN and files[0].is_python(name):
        wanted = in_python(files[0].types[name])
    try:
        form = joined([file.types[name] for file in files], wanted)
        spec = UNKNOWN if form is None else spec_of_column(form, wanted)
    except _UNREADABLE as error:
        raise _unreadable(files[0].path, name, error) from error
    if form is None:
        raise _differs(files, name, wanted)
    if fill is not None:
        spec = spec_of_filled(form, fill, wanted)
        fill = value_for("from_parquet", name, fill, spec)
        if isinstance(fill, datetime) and (fill.tzinfo is not None) is not is_instant(form):
            raise InvalidFlow(
                f"from_parquet: fill of {name!r} must have a time zone if the column has one, got "
                f"{fill!r} for {form}"
            )
    _check_declared(files[0].path, name, spec, declared)
    missing = [0 if fill is not None else file.nulls(name) for file in files]
    if not optional and any(missing):
        path = next(file.path for file, n in zip(files, missing, strict=True) if n)
        raise SpecMismatch(_null_message(path, name))
    has_no_nulls = not optional or all(n == 0 for n in missing)
    column = Column(
        name,
        wanted,
        optional,
        fill=fill,
        declared=declared.spec,
        of_dicts=declared.is_mapping and is_map(form),
    )
    return column, spec if has_no_nulls else UNKNOWN


def _check_declared(path: str, name: str, spec: Spec, declared: Declaration) -> None:
    try:
        declared.check(spec, name)
        if declared.spec != UNKNOWN and declared.optional:
            meet(declared.spec, as_declared(spec, declared.spec), name)
    except SpecMismatch as error:
        raise SpecMismatch(f"from_parquet: {path!r}: {error}") from error


def _differs(files: Sequence[ParquetFile], name: str, wanted: Spec) -> SourceError:
    """Return the error of a column whose values are not alike in two files."""
    paths: dict[Any, str] = {}
    for file in files:
        paths.setdefault(file.types[name], file.path)
    forms = list(paths)
    first, other = next(
        (a, b) for k, b in enumerate(forms) for a in forms[:k] if joined([a, b], wanted) is None
    )
    kinds = {value for form in (first, other) if (value := python_number(form))}
    remedy = "" if len(kinds) != 1 else f"; declare {kinds.pop().__name__} to read both"
    return SourceError(
        f"from_parquet: {paths[other]!r} has other columns than {paths[first]!r}: {name!r} is "
        f"{other}, there it is {first}{remedy}"
    )

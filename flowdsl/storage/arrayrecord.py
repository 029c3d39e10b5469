"""from_arrayrecord and write_arrayrecord: records of bytes in ArrayRecord files, by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import attrs
import xxhash
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact, Finite
from flowdsl.elements.declared_specs import spec_declared
from flowdsl.elements.specs import Spec, ValueSpec, spec_of
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.nodes import (
    READER_KEYWORD_ADVICE,
    FlowBase,
    T,
    checked_int,
    frozen_node,
    rejects_keywords,
)
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.codec import SameTupleNames, decode, encode
from flowdsl.storage.digests import Version, versions_of
from flowdsl.storage.file_source import ShardedSource
from flowdsl.storage.libraries import library
from flowdsl.storage.open_files import Reopened
from flowdsl.storage.paths import OnePath, Paths, all_paths, local_path, title_of
from flowdsl.storage.read_ahead import by_number
from flowdsl.storage.schema import SchemaRows
from flowdsl.storage.writing import os_error_behind, write_file

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_MODULE = "array_record.python.array_record_module"
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""The library starts no threads and buffers nothing, as many processes read in random order."""

_MARK = b"\xc1flow"
"""The prefix of an encoded element; valid MessagePack never begins with 0xC1."""

_AHEAD, _AHEAD_BYTES, _AHEAD_BYTES_UNGROUPED = 256, 1 << 20, 1 << 17
"""The limits on the records, and on their bytes, that are read at once. To read a record, the
library decompresses the whole group that it is in, so records of one group are read together. If
each record is a group of its own, more bytes would only displace each other from the processor's
cache."""


@attrs.frozen
class RecordFile:
    """The identity of one file: its version, size and number of records."""

    version: Version
    size: int
    length: int

    @property
    def path(self) -> str:
        return self.version.path


class _File:
    """An ArrayRecord file, open for reading.

    Raises:
        SourceError: The file is missing or damaged, or has changed.
    """

    def __init__(self, part: RecordFile) -> None:
        self.path = part.path
        self._version = part.version
        self._opened = Reopened(self._open)
        options: str = self._opened.get()[0].writer_options_string()
        most = _AHEAD_BYTES_UNGROUPED if "group_size:1," in options else _AHEAD_BYTES
        self.at_once = max(1, min(most * part.length // max(1, part.size), _AHEAD))
        """The number of records that are read at once when reading in order."""

    def _open(self) -> tuple[Any, ByteFile]:
        """Return the library's reader, and the file whose version is checked after each read.

        They are closed and opened together, as the file may be replaced in between.
        """
        self._version.open("from_arrayrecord")  # fails if any other file replaced it
        reader = _reader_of(self.path)
        return reader, self._version.open("from_arrayrecord")  # so it is no older than the reader

    def records(self, start: int, end: int) -> list[bytes]:
        """Return the records ``start`` to ``end``; raises SourceError if one is damaged."""
        reader, file = self._opened.get()
        try:
            records: list[bytes] = reader.read(start, end)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise SourceError(f"{self.path!r}: row {start} cannot be read: {error}") from error
        file.check()
        if len(records) != end - start:
            raise SourceError(f"{self.path!r}: rows {start} to {end} are {len(records)} rows")
        return records


def _reader_of(path: str) -> Any:
    """Return the library's reader of a file, which closes the file when it is garbage-collected."""
    module = library(_MODULE, "from_arrayrecord", "arrayrecord")
    try:
        reader = module.ArrayRecordReader(path, _OPTIONS)
        if not reader.ok():
            raise ValueError("the library's reader refuses it")
        reader.num_records()
    except (RuntimeError, ValueError) as error:
        raise SourceError(
            f"from_arrayrecord: {path!r} is damaged or is not an ArrayRecord file: {error}"
        ) from error
    return reader


@frozen_node
class FromArrayRecord(ShardedSource[T], Generic[T]):
    """The source of ``from_arrayrecord``: records of ArrayRecord files, by index."""

    parts: tuple[RecordFile, ...]
    row_spec: Spec

    @property
    def title(self) -> str:
        return title_of("from_arrayrecord", [part.path for part in self.parts])

    @property
    def fingerprint(self) -> str:
        digests = " ".join(str(part.version.digest) for part in self.parts)
        digest = xxhash.xxh3_64_hexdigest(digests.encode())
        return f"{self.title} of {self.length} rows {digest}"

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        shards = self.shards
        files = {0: _File(self.parts[0])}  # fails at once if it was rewritten
        decoder = _unchanged if self.row_spec == ValueSpec(bytes) else _Decoder(self.row_spec)

        def rows(i: int, in_order: bool) -> list[T]:
            k, start = shards.find(i)
            part = self.parts[k]
            if k not in files:
                files[k] = _File(part)
            end = min(start + (files[k].at_once if in_order else 1), part.length)
            try:
                records = enumerate(files[k].records(start, end), start)
                return [decoder(record, part.path, number) for number, record in records]
            except Exception:  # a later row may have failed: read this one alone
                return [decoder(files[k].records(start, start + 1)[0], part.path, start)]

        return by_number(rows)


def _unchanged(record: bytes, path: str, i: int) -> Any:
    """Return a record as bytes; refuse an element that ``write_arrayrecord`` encoded."""
    if record.startswith(_MARK):
        raise SpecMismatch(
            f"from_arrayrecord: {path!r} holds elements that flow.write_arrayrecord(path) encoded, "
            f"not bytes; declare them: from_arrayrecord(path, Sample), or object for any"
        )
    return record


class _Decoder:
    """Decodes elements of ``write_arrayrecord`` and checks them against the declared spec."""

    def __init__(self, declared: Spec) -> None:
        self._checked = lru_cache(partial(SchemaRows, "from_arrayrecord", declared=declared))

    def __call__(self, record: bytes, path: str, i: int) -> Any:
        if not record.startswith(_MARK):
            raise SourceError(
                f"{path!r}: record {i} is not an element that flow.write_arrayrecord(path) "
                f"encoded; to read records as bytes, declare no element"
            )
        try:
            row = decode(memoryview(record)[len(_MARK) :])
        except SourceError as error:
            raise SourceError(f"{path!r}: record {i}: {error}") from error
        return self._checked(path).row(i, row)


@overload
def from_arrayrecord(paths: Paths) -> Flow[bytes, Exact]: ...
@overload
def from_arrayrecord(paths: Paths, element: TypeForm[A]) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_arrayrecord(paths: Paths, element: Any = bytes) -> Flow[Any, Exact]:
    """Read the records of ArrayRecord files, by index: as ``bytes`` or as decoded elements.

    ``paths`` is a path, a pattern, or a list of these; files are read in the listed order. Without
    ``element``, each record is returned as ``bytes``, whichever program wrote it. With ``element``,
    records that ``write_arrayrecord`` encoded are decoded: ``object`` accepts any element; a
    NamedTuple, record class or annotation is checked against each row. Reading runs no code from
    the file. The library verifies checksums.

    Length: the number of records in the files.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if a file is missing, damaged or not an
    ArrayRecord file, and at the row for a damaged record; ``SpecMismatch`` at a row that does not
    match ``element``; ``MissingLibrary`` without array_record.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fl.from_range(3).map(lambda i: (i, i * i)).write_arrayrecord(f"{folder}/a.ar")
    ...     fl.from_arrayrecord(f"{folder}/a.ar", tuple[int, int]).collect()
    [(0, 0), (1, 1), (2, 4)]

    Source: ArrayRecord by Google, which is built on Riegeli records.

    Elsewhere: tensorpack none; tf.data none; Grain ``ArrayRecordDataSource``; torchdata none.
    """
    names = [local_path("from_arrayrecord", one) for one in all_paths("from_arrayrecord", paths)]
    spec = spec_declared("from_arrayrecord: rows", element)
    library(_MODULE, "from_arrayrecord", "arrayrecord")
    files = [open_file("from_arrayrecord", name) for name in names]
    lengths = [_reader_of(name).num_records() for name in names]
    pairs = zip(versions_of(files), files, lengths, strict=True)
    parts = tuple(RecordFile(version, file.size, length) for version, file, length in pairs)
    return nodes.flow(FromArrayRecord[Any](parts, spec))


def write(
    flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False, group_size: int = 1
) -> int:
    """Write the elements of a flow, as its method ``write_arrayrecord`` does."""
    library(_MODULE, "write_arrayrecord", "arrayrecord")
    size = checked_int("write_arrayrecord: group_size", group_size, 1)
    return write_file(
        "write_arrayrecord", flow, path, overwrite, lambda to, rows: _write(to, rows, size)
    )


def _write(path: Path, rows: Iterable[object], group_size: int) -> None:
    module = library(_MODULE, "write_arrayrecord", "arrayrecord")
    writer = module.ArrayRecordWriter(str(path), f"group_size:{group_size}")
    first_is_raw: bool | None = None
    tuple_names = SameTupleNames()
    try:
        for row in rows:
            is_raw = type(row) is bytes
            if first_is_raw not in (None, is_raw):
                raise SpecMismatch(
                    f"element: row is of type {type(row).__name__}, earlier rows are "
                    f"{'bytes' if first_is_raw else 'of other types'}; bytes are written unchanged "
                    f"and all else is encoded, so one file cannot have both"
                )
            first_is_raw = is_raw
            if is_raw and cast("bytes", row).startswith(_MARK):
                raise SpecMismatch("element: bytes that begin with the mark of encoded elements")
            tuple_names.check(spec_of(row))
            record = cast("bytes", row) if is_raw else _MARK + encode(row)
            _call(writer.write, record)
    finally:
        _call(writer.close)


def _call(write: Callable[..., object], *record: bytes) -> None:
    """Call the library's writer; its RuntimeError is re-raised as the OSError behind it."""
    try:
        write(*record)
    except RuntimeError as error:
        raise os_error_behind(error) from error

"""from_tfrecord: records in TFRecord files, without TensorFlow.

A record of a TFRecord file is bytes, and is read as bytes. The file does not describe their
meaning: the program parses them, e.g. with ``flow.map(fl.parse_example(Sample))``.

Elements that are not bytes are encoded by flowdsl's codec. They are followed by one more record,
which stores their number and spec. A file that was truncated between two records is therefore
detected, and a declared element is checked when the flow is built, as for an LMDB file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar, overload

import attrs
import xxhash
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact, Unsized
from flowdsl.elements.declared_specs import spec_declared
from flowdsl.elements.specs import Spec, ValueSpec, join
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import READER_KEYWORD_ADVICE, T, cached_per_node, frozen_node, rejects_keywords
from flowdsl.storage.byte_files import ByteFile, LocalFile, guard_file, open_file
from flowdsl.storage.codec import NUMBER_BYTES, bytes_of_number
from flowdsl.storage.compression import Compression, check_compression
from flowdsl.storage.digests import versions_of
from flowdsl.storage.file_source import RowReader, ShardedSource, file_has_changed
from flowdsl.storage.index import Index, Shards, index_of
from flowdsl.storage.layout import InPlace, OutArrays, Parts
from flowdsl.storage.paths import Paths, all_paths, title_of
from flowdsl.storage.read_ahead import ReadAhead
from flowdsl.storage.schema import SchemaRows, checked_against
from flowdsl.storage.tfrecord.compressed import FromCompressedTFRecord, of_another_size
from flowdsl.storage.tfrecord.ending import END, decoded, encoded_rows, end_of, no_end
from flowdsl.storage.tfrecord.framing import Checksum, Payloads, checksum_for, scan

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_BYTES = ValueSpec(bytes)
_MAX_OPEN = 64
"""The limit on files that one reader keeps open."""
_MAX_READ_AHEAD = 1 << 17


@attrs.frozen
class _Part:
    """The identity of one file: its path, number of rows and digest."""

    path: str
    length: int
    digest: int


def _indexed(file: ByteFile, checksum: Checksum) -> Index:
    return index_of(file, "tfrecord 1", partial(scan, checksum=checksum))


def _payloads(file: ByteFile, checksum: Checksum, index: Index) -> Payloads:
    ahead = ReadAhead(file, _MAX_READ_AHEAD)
    return Payloads(file.path, ahead, checksum, index.starts.data, index.ends.data)


def _part(path: str, element: Any, encoded: bool, checksum: Checksum) -> tuple[_Part, Spec]:
    """Return a file's description and the spec of its rows, checked against the element."""
    file = open_file("from_tfrecord", path)
    index = _indexed(file, checksum)
    rows = len(index)
    has_end = rows > 0 and file.read(int(index.starts[-1]), len(END)) == END
    if not has_end and not encoded:
        return _Part(path, rows, index.digest), _BYTES
    if not has_end:
        raise no_end(path)
    rows -= 1
    stored = end_of(path, _payloads(file, checksum, index).get(rows), rows)
    if rows and not encoded:
        raise encoded_rows(path)
    spec = checked_against("from_tfrecord", path, element, stored) if encoded else _BYTES
    return _Part(path, rows, index.digest), spec


@frozen_node
class FromTFRecord(ShardedSource[T], Generic[T]):
    """The source of ``from_tfrecord``: the records of TFRecord files, by index."""

    parts: tuple[_Part, ...]
    encoded: bool
    row_spec: Spec

    @property
    def title(self) -> str:
        return title_of("from_tfrecord", [part.path for part in self.parts])

    @property
    @cached_per_node
    def fingerprint(self) -> str:
        digests = b"".join(part.digest.to_bytes(8, "little") for part in self.parts)
        return f"{self.title} of {self.length} rows {xxhash.xxh3_64_hexdigest(digests)}"

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        checksum = checksum_for("from_tfrecord")
        form = self.row_spec if self.encoded else None
        opened = lru_cache(_MAX_OPEN)(partial(_opened, self.parts, checksum, form))
        shards = self.shards
        one = len(self.parts) == 1
        read = opened(0) if one else partial(_row_of_shards, opened, shards)
        return RowReader(read) if self.encoded else read


def _opened(
    parts: Sequence[_Part], checksum: Checksum, form: Spec | None, k: int
) -> Callable[..., Any]:
    """Return a reader of one file's rows; ``form`` is the spec of encoded rows, None for bytes.

    A reader of encoded rows is called with a row's number and its ``out``, a reader of bytes only
    with the number.
    """
    path = parts[k].path
    file = open_file("from_tfrecord", path)
    index = _indexed(file, checksum)
    if index.digest != parts[k].digest:
        raise file_has_changed(path)
    guard_file(file, partial(_is_same, checksum, index.digest))
    payloads = _payloads(file, checksum, index)
    if form is None:
        return payloads.get
    rows = len(index) - 1
    stored = end_of(path, payloads.get(rows), rows)
    return _Elements(payloads, SchemaRows("from_tfrecord", path, form, stored)).row


@attrs.define(eq=False)
class _Elements:
    """The encoded elements of a file, by index."""

    payloads: Payloads
    checked: SchemaRows
    in_place: InPlace = attrs.field(factory=lambda: InPlace(lambda _: (0, NUMBER_BYTES)))

    def row(self, i: int, out: OutArrays) -> Any:
        """Return an element, its arrays read into ``out`` if possible."""
        size = self.payloads.size(i)
        row = self.in_place.row(size, out, partial(self._fill, i))
        if row is None:
            payload = self.payloads.get(i)
            row = decoded(self.payloads.path, i, payload)
            if out:
                self.in_place.guess(row, memoryview(payload)[:-NUMBER_BYTES])
        return self.checked.row(i, row) if self.checked.changes else row

    def _fill(self, i: int, before: bytearray, parts: Parts, number: bytearray) -> bool:
        return self.payloads.get_into(i, [*parts, number]) and number == bytes_of_number(i)


def _is_same(checksum: Checksum, digest: int, file: LocalFile, size: int) -> bool:
    return size == file.size and _indexed(file, checksum).digest == digest


def _row_of_shards(
    opened: Callable[[int], Callable[..., Any]], shards: Shards, i: int, *out: OutArrays
) -> Any:
    k, own = shards.find(i)
    return opened(k)(own, *out)


@overload  # for calls with ``**options``, whose names pyright does not know
def from_tfrecord(
    path: Paths, *, size: int | None = None, compression: Never
) -> Flow[bytes, Any]: ...
@overload
def from_tfrecord(
    path: Paths, *, size: int | None = None, compression: None = None
) -> Flow[bytes, Exact]: ...
@overload
def from_tfrecord(
    path: Paths, element: TypeForm[A], *, size: int | None = None, compression: None = None
) -> Flow[A, Exact]: ...
@overload
def from_tfrecord(
    path: Paths, *, size: int | None = None, compression: Literal["gzip", "zlib"]
) -> Flow[bytes, Unsized]: ...
@overload
def from_tfrecord(
    path: Paths,
    element: TypeForm[A],
    *,
    size: int | None = None,
    compression: Literal["gzip", "zlib"],
) -> Flow[A, Unsized]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_tfrecord(
    path: Paths,
    element: Any = bytes,
    *,
    size: int | None = None,
    compression: Compression | None = None,
) -> Flow[Any, Exact] | Flow[Any, Unsized]:
    """Read the records of TFRecord files as bytes: of one file, a pattern, or a list, in order.

    Parse them with ``flow.map``: ``fl.parse_example(Sample)`` parses a ``tf.train.Example``. Files
    that ``write_tfrecord`` wrote from elements other than bytes are read with an ``element``, which
    declares the type of a row, as in ``from_lmdb``; ``object`` accepts any. TensorFlow is not
    needed, and no code from a file is run. Names may be URLs, ``s3://...``.

    The first flow over a file scans the lengths of its records once and stores an index in a hidden
    file beside it; rows are then accessible by index. A file with ``compression="gzip"`` or
    ``"zlib"`` has no index: it is read in order, in the consumer's process. A file of bytes that
    was truncated between two records looks complete: pass ``size``, the number of rows, if it is
    known.

    Length: the number of records; unknown before the end of a pass of a compressed file.

    Effects: none; ``Unsized`` with ``compression``.

    Errors: ``SourceError`` when the flow is built, if a file is missing, truncated, not a TFRecord
    file, or damaged in its lengths, or if there are not ``size`` rows; at the row, if its payload
    is damaged; for a compressed file, during a pass. ``SpecMismatch`` if the rows do not match
    ``element``; ``MissingLibrary`` if google-crc32c is not installed.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fl.from_items([b"a", b"bc"]).write_tfrecord(f"{folder}/0.tfrecord")
    ...     _ = fl.from_items([b"d"]).write_tfrecord(f"{folder}/1.tfrecord")
    ...     fl.from_tfrecord(f"{folder}/*.tfrecord").collect()
    [b'a', b'bc', b'd']

    Source: ``TFRecordSerializer.load`` in tensorpack; the format is TensorFlow's.

    Elsewhere: tensorpack ``TFRecordSerializer.load``; tf.data ``TFRecordDataset``; Grain
    ``TFRecordIterDataset``; torchdata ``TFRecordLoader``.
    """
    paths = all_paths("from_tfrecord", path)
    check_compression("from_tfrecord", compression)
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidFlow(f"from_tfrecord: size must be None or an int >= 0, got {size!r}")
    declared = spec_declared("from_tfrecord: rows", element)
    encoded = declared != _BYTES
    checksum = checksum_for("from_tfrecord")
    if compression is not None:
        versions = versions_of([open_file("from_tfrecord", name) for name in paths])
        return nodes.flow(
            FromCompressedTFRecord[Any](tuple(versions), compression, encoded, declared, size)
        )
    indexed = [_part(name, element, encoded, checksum) for name in paths]
    parts = tuple(part for part, _ in indexed)
    specs = [spec for part, spec in indexed if part.length] or [declared]
    source = FromTFRecord[Any](parts, encoded, reduce(join, specs))
    if size is not None and size != source.length:
        raise of_another_size(paths, size, source.length)
    return nodes.flow(source)

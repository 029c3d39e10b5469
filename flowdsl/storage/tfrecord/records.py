"""from_tfrecord: records in TFRecord files, without TensorFlow.

A record of a TFRecord file is bytes, and so is the element that is read. What says what the bytes
mean is not in the file: a program parses them, as ``flow.map(fl.parse_example(Sample))`` does.

Elements that are not bytes are encoded by flowdsl's codec. After the last there is one record more,
which tells how many they are, and what: so that a file that is cut off between two records is
noticed, and a declared element is checked at once, as in an LMDB file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import attrs
import xxhash
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact, Unsized
from flowdsl.elements.specs import Spec, ValueSpec, join, spec_declared
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import IndexedSource, T, cached_per_node
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.index import Index, Shards, index_of
from flowdsl.storage.paths import Paths, all_paths, title_of
from flowdsl.storage.schema import SchemaRows, checked_against
from flowdsl.storage.tfrecord.compressed import (
    FromCompressedTFRecord,
    changed,
    mark_of,
    of_another_size,
)
from flowdsl.storage.tfrecord.ending import END, decoded, encoded_rows, end_of, no_end
from flowdsl.storage.tfrecord.framing import Checksum, Payloads, checksum_for, scan
from flowdsl.storage.tfrecord.inflating import Compression, check_compression

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_BYTES = ValueSpec(bytes)
_MOST_OPEN = 64
"""How many files one reader holds open."""


@attrs.frozen
class _Part:
    """What was learnt of one file when the flow was built."""

    path: str
    rows: int
    digest: int


def _indexed(file: ByteFile, checksum: Checksum) -> Index:
    return index_of(file, "tfrecord 1", partial(scan, checksum=checksum))


def _payloads(file: ByteFile, checksum: Checksum, index: Index) -> Payloads:
    return Payloads(file, checksum, index.starts.data, index.ends.data)


def _part(path: str, element: Any, encoded: bool, checksum: Checksum) -> tuple[_Part, Spec]:
    """A file's rows, and what they are; the declared element is checked against the file."""
    file = open_file("from_tfrecord", path)
    index = _indexed(file, checksum)
    rows = len(index)
    ends = rows > 0 and file.read(int(index.starts[-1]), len(END)) == END
    if not ends and not encoded:
        return _Part(path, rows, index.digest), _BYTES
    if not ends:
        raise no_end(path)
    rows -= 1
    stored = end_of(path, _payloads(file, checksum, index).get(rows), rows)
    if rows and not encoded:
        raise encoded_rows(path)
    spec = checked_against("from_tfrecord", path, element, stored) if encoded else _BYTES
    return _Part(path, rows, index.digest), spec


@attrs.frozen(repr=False)
class FromTFRecord(IndexedSource[T], Generic[T]):
    """The records of TFRecord files, by number."""

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

    @property
    @cached_per_node
    def length(self) -> int:
        return sum(part.rows for part in self.parts)

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        checksum = checksum_for("from_tfrecord")
        form = self.row_spec if self.encoded else None
        opened = lru_cache(_MOST_OPEN)(partial(_opened, self.parts, checksum, form))
        if len(self.parts) == 1:
            return opened(0)
        return partial(_numbered_through, opened, Shards([part.rows for part in self.parts]))


def _opened(
    parts: Sequence[_Part], checksum: Checksum, form: Spec | None, k: int
) -> Callable[[int], Any]:
    """A reader of the rows of one file; ``form``: what was encoded, if it was."""
    path = parts[k].path
    file = open_file("from_tfrecord", path)
    index = _indexed(file, checksum)
    if index.digest != parts[k].digest:
        raise changed(path)
    payload = _payloads(file, checksum, index).get
    if form is None:
        return payload
    rows = len(index) - 1
    held = SchemaRows("from_tfrecord", path, form, end_of(path, payload(rows), rows))
    if not held.changes:
        return lambda i: decoded(path, i, payload(i))
    return lambda i: held.row(i, decoded(path, i, payload(i)))


def _numbered_through(opened: Callable[[int], Callable[[int], T]], shards: Shards, i: int) -> T:
    k, own = shards.find(i)
    return opened(k)(own)


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
def from_tfrecord(
    path: Paths,
    element: Any = bytes,
    *,
    size: int | None = None,
    compression: Compression | None = None,
) -> Flow[Any, Exact] | Flow[Any, Unsized]:
    """The records of TFRecord files, as bytes: of one file, a pattern, or a list, in this order.

    It is for ``flow.map`` to parse them: ``fl.parse_example(Sample)`` does for a
    ``tf.train.Example``. Files that ``write_tfrecord`` made of anything but bytes are read with an
    ``element``, which declares what a row is, as in ``from_lmdb``; ``object`` allows any.
    TensorFlow is not needed, and no code from a file is run. Names may be URLs, ``s3://...``.

    The first flow over a file makes an index beside it, a hidden file, by one scan of the lengths
    of its records; with it any row is read by its number. A file that is ``compression="gzip"`` or
    ``"zlib"`` has none: it is read in order, in the consumer's process. A file of bytes that was
    cut off between two records cannot be told from a whole one: give ``size``, the number of rows,
    where it is known.

    Length: the number of records; unknown before the end of a pass of a compressed file.

    Effects: none; ``Unsized`` with ``compression``.

    Errors: ``SourceError`` at once, if a file is missing, damaged in its lengths, cut short, of
    another kind, or if there are not ``size`` rows, and at the row if its payload is damaged; of a
    compressed file, in its place in a pass. ``SpecMismatch`` if the rows are not what ``element``
    declares; ``MissingLibrary``, if google-crc32c is not installed.

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
        marks = tuple(mark_of(open_file("from_tfrecord", one)) for one in paths)
        return nodes.flow(
            FromCompressedTFRecord[Any](paths, marks, compression, encoded, declared, size)
        )
    found = [_part(one, element, encoded, checksum) for one in paths]
    parts = tuple(part for part, _ in found)
    specs = [spec for part, spec in found if part.rows] or [declared]
    source = FromTFRecord[Any](parts, encoded, reduce(join, specs))
    if size is not None and size != source.length:
        raise of_another_size(paths, size, source.length)
    return nodes.flow(source)

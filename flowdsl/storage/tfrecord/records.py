"""from_tfrecord and write_tfrecord: records in TFRecord files, without TensorFlow.

A record of a TFRecord file is bytes, and so is the element that is read. What says what the bytes
mean is not in the file: a program parses them, as ``flow.map(fl.parse_example(Sample))`` does.

Elements that are not bytes are encoded by flowdsl's codec. After the last there is one record more,
which tells how many they are, and what: so that a file that is cut off between two records is
noticed, and a declared element is checked at once, as in an LMDB file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, Protocol, TypeVar, cast, overload

import attrs
import msgspec
import xxhash
from typing_extensions import TypeForm

from flowdsl import node
from flowdsl.effects import Exact, Finite, Unsized
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.kinds import IndexedSource
from flowdsl.node import FlowBase, Node, Passes, Row, T, remembered
from flowdsl.probing import settled
from flowdsl.specs import (
    UNKNOWN,
    Spec,
    ValueSpec,
    as_declared,
    in_classes,
    join,
    meet,
    names_classes,
    spec_declared,
    spec_of,
)
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.codec import (
    decode_numbered,
    encode_numbered,
    spec_from_plain,
    spec_to_plain,
)
from flowdsl.storage.declared import held_to
from flowdsl.storage.index import Index, Shards, index_of
from flowdsl.storage.paths import OnePath, Paths, all_paths, title_of
from flowdsl.storage.tfrecord.framing import (
    HEADER,
    Checksum,
    Payloads,
    checksum_for,
    cut_short,
    framed,
    no_record,
    scan,
)
from flowdsl.storage.tfrecord.inflating import WINDOW, Compression, Inflated
from flowdsl.storage.writing import write_file

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_END = b"\xc1flowdsl tfrecord end\n"
"""What the record after encoded elements begins with; no MessagePack begins with 0xC1."""
_VERSION = 1
_BYTES = ValueSpec(bytes)
_MOST_OPEN = 64
"""How many files one reader holds open."""


class _End(msgspec.Struct, frozen=True):
    """What the record after encoded elements holds."""

    version: int
    length: int
    spec: dict[str, Any]


def _end_of(path: str, payload: bytes, rows: int) -> Spec:
    """The spec of the rows before this payload, which is the last of a file."""
    try:
        end = msgspec.msgpack.decode(payload[len(_END) :], type=_End)
        spec = spec_from_plain(end.spec) if end.version == _VERSION else UNKNOWN
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise SourceError(f"from_tfrecord: {path!r}: its last record is damaged") from error
    if end.version != _VERSION:
        raise SourceError(
            f"from_tfrecord: {path!r} has format version {end.version}, this flowdsl reads "
            f"version {_VERSION}"
        )
    if end.length != rows:
        raise SourceError(
            f"from_tfrecord: {path!r} is damaged: its end says {end.length} rows, it holds {rows}"
        )
    return spec


def _no_end(path: str) -> SourceError:
    return SourceError(
        f"from_tfrecord: {path!r} holds no whole flow of encoded elements: it was cut off, or "
        f"written by something else; to read its records as bytes, declare no element"
    )


def _encoded(path: str) -> SpecMismatch:
    return SpecMismatch(
        f"from_tfrecord: {path!r} holds elements that flow.write_tfrecord(path) encoded, not "
        f"bytes; declare them: from_tfrecord(path, Sample), or from_tfrecord(path, object) for any"
    )


def _decoded(path: str, i: int, payload: bytes) -> Any:
    try:
        return decode_numbered(i, payload)
    except SourceError as error:
        raise SourceError(f"{path!r}: row {i} cannot be read: {error}") from error


# -- files that are read at random -----------------------------------------------------------------


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
    ends = rows > 0 and file.read(int(index.starts[-1]), len(_END)) == _END
    if not ends and not encoded:
        return _Part(path, rows, index.digest), _BYTES
    if not ends:
        raise _no_end(path)
    rows -= 1
    stored = _end_of(path, _payloads(file, checksum, index).get(rows), rows)
    if rows and not encoded:
        raise _encoded(path)
    spec = held_to("from_tfrecord", path, element, stored) if encoded else _BYTES
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
    @remembered
    def fingerprint(self) -> str:
        digests = b"".join(part.digest.to_bytes(8, "little") for part in self.parts)
        return f"{self.title} of {self.length} rows {xxhash.xxh3_64_hexdigest(digests)}"

    @property
    @remembered
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
        raise _changed(path)
    payload = _payloads(file, checksum, index).get
    if form is None:
        return payload
    if not names_classes(form):
        return lambda i: _decoded(path, i, payload(i))
    return lambda i: in_classes(_decoded(path, i, payload(i)), form)


def _numbered_through(opened: Callable[[int], Callable[[int], T]], shards: Shards, i: int) -> T:
    k, own = shards.find(i)
    return opened(k)(own)


def _changed(path: str) -> SourceError:
    return SourceError(f"{path!r} holds other rows than when this flow was built: build a new flow")


# -- compressed files, which are streams -----------------------------------------------------------


@attrs.frozen(repr=False)
class FromCompressedTFRecord(Node[T, Unsized], Generic[T]):
    """The records of compressed TFRecord files, in order."""

    paths: tuple[str, ...]
    marks: tuple[str, ...]
    """What tells the content of each file."""
    compression: Compression
    encoded: bool
    declared: Spec
    size: int | None

    @property
    def title(self) -> str:
        return title_of("from_tfrecord", self.paths, f"compression={self.compression!r}")

    @property
    def fingerprint(self) -> str:
        return f"{self.title} {xxhash.xxh3_64_hexdigest(' '.join(self.marks).encode())}"

    @property
    def length(self) -> int | None:
        return None

    @remembered
    def spec(self, probe: bool) -> Spec:
        return settled(self, self.declared, probe)

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[T]]:
        position = 0
        for path, mark in zip(self.paths, self.marks, strict=True):
            file = open_file("from_tfrecord", path)
            if _mark(file) != mark:
                raise _changed(path)
            payloads = _streamed(file, self.compression)
            for row in self._elements(path, payloads) if self.encoded else _raw(path, payloads):
                yield position, cast("T", row)
                position += 1
        if self.size is not None and self.size != position:
            raise _of_another_size(self.paths, self.size, position)

    def _elements(self, path: str, payloads: Iterator[bytes]) -> Iterator[Any]:
        last: Spec | None = None
        held: Spec = UNKNOWN
        for i, payload in enumerate(payloads):
            if payload.startswith(_END):
                _end_of(path, payload, i)
                if next(payloads, None) is not None:
                    raise _no_end(path)
                return
            row = _decoded(path, i, payload)
            if self.declared == UNKNOWN:
                yield row
                continue
            if (own := spec_of(row)) != last:
                last, held = own, _row_held_to(path, i, self.declared, own)
            yield in_classes(row, held) if names_classes(held) else row
        raise _no_end(path)


def _row_held_to(path: str, i: int, declared: Spec, own: Spec) -> Spec:
    try:
        return meet(declared, as_declared(own, declared), "row")
    except SpecMismatch as error:
        raise SpecMismatch(
            f"from_tfrecord: {path!r}: {error}; declared {declared}, row {i} is {own}"
        ) from error


def _raw(path: str, payloads: Iterator[bytes]) -> Iterator[bytes]:
    for i, payload in enumerate(payloads):
        if payload.startswith(_END):
            _end_of(path, payload, i)
            if i or next(payloads, None) is not None:
                raise _encoded(path)
            return
        yield payload


def _streamed(file: ByteFile, compression: Compression) -> Iterator[bytes]:
    """The payloads of a compressed file; raises SourceError at the first that is damaged."""
    checksum = checksum_for("from_tfrecord")
    content = Inflated("from_tfrecord", file, compression)
    at = 0
    while header := content.read(HEADER.size):
        if len(header) < HEADER.size:
            raise cut_short(file.path, at)
        length, expected = HEADER.unpack(header)
        if checksum(header[:8]) != expected:
            raise no_record(file.path, at, header[:2])
        payload, footer = content.read(length), content.read(4)
        if len(payload) + len(footer) < length + 4:
            raise cut_short(file.path, at)
        if footer != checksum(payload).to_bytes(4, "little"):
            raise SourceError(
                f"from_tfrecord: {file.path!r} is damaged: the checksum of the record at byte {at} "
                f"of its content differs"
            )
        yield payload
        at += HEADER.size + length + 4


def _mark(file: ByteFile) -> str:
    """What tells the content: a compressed file ends with a checksum of it."""
    return f"{file.size}:{file.read(max(file.size - 8, 0), 8).hex()}"


# -- reading ---------------------------------------------------------------------------------------


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
    _check_compression("from_tfrecord", compression)
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidFlow(f"from_tfrecord: size must be None or an int >= 0, got {size!r}")
    declared = spec_declared("from_tfrecord: rows", element)
    encoded = declared != _BYTES
    checksum = checksum_for("from_tfrecord")
    if compression is not None:
        marks = tuple(_mark(open_file("from_tfrecord", one)) for one in paths)
        return node.flow(
            FromCompressedTFRecord[Any](paths, marks, compression, encoded, declared, size)
        )
    found = [_part(one, element, encoded, checksum) for one in paths]
    parts = tuple(part for part, _ in found)
    specs = [spec for part, spec in found if part.rows] or [declared]
    source = FromTFRecord[Any](parts, encoded, reduce(join, specs))
    if size is not None and size != source.length:
        raise _of_another_size(paths, size, source.length)
    return node.flow(source)


def _of_another_size(paths: Sequence[str], size: int, found: int) -> SourceError:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return SourceError(f"from_tfrecord: size={size}, but {paths[0]!r}{more} holds {found} rows")


def _check_compression(operator: str, compression: object) -> None:
    if compression not in (None, *WINDOW):
        raise InvalidFlow(
            f"{operator}: compression must be None, 'gzip' or 'zlib', got {compression!r}"
        )


# -- writing ---------------------------------------------------------------------------------------


def write(
    flow: FlowBase[object, Finite],
    path: OnePath,
    compression: Compression | None = None,
    overwrite: bool = False,
) -> int:
    """Run one pass of a flow and write its elements; gives the number of rows.

    Raises:
        EndlessFlow: It never ends.
        InvalidFlow: The file exists, or its folder does not.
        SourceError: The disk refuses.
        SpecMismatch: An element cannot be written.
    """
    _check_compression("write_tfrecord", compression)
    checksum = checksum_for("write_tfrecord")

    def written(partial_path: Path, elements: Iterable[object]) -> None:
        with open(partial_path, "xb", buffering=1 << 20) as file:
            out: _Output = file if compression is None else _Deflated(file, compression)
            _write(out, elements, checksum, flow.node.spec(probe=False) == _BYTES)
            if isinstance(out, _Deflated):
                out.finish()

    return write_file("write_tfrecord", flow, path, overwrite, written)


class _Output(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Deflated:
    """Compresses what is written to a file."""

    def __init__(self, file: BinaryIO, compression: Compression) -> None:
        self._file = file
        self._deflate = zlib.compressobj(wbits=WINDOW[compression])

    def write(self, data: bytes) -> None:
        self._file.write(self._deflate.compress(data))

    def finish(self) -> None:
        self._file.write(self._deflate.flush())


def _write(out: _Output, elements: Iterable[object], checksum: Checksum, raw: bool) -> None:
    """Write rows; ``raw`` says whether they are bytes if there are none."""
    spec: Spec | None = None
    length = 0
    for row in elements:
        if length == 0:
            raw = type(row) is bytes
        elif raw is not (type(row) is bytes):
            before = "bytes" if raw else "encoded elements"
            raise SpecMismatch(
                f"element: {type(row).__name__} after {before}; a file holds either bytes, as they "
                f"are, or anything else, encoded: (x,) is encoded whatever x is"
            )
        if isinstance(row, bytes) and row.startswith(_END):
            raise SpecMismatch("element: bytes that begin as the end of a file of other elements")
        out.write(framed(cast("bytes", row) if raw else encode_numbered(length, row), checksum))
        if not raw:
            seen = spec_of(row)
            spec = seen if spec is None else join(spec, seen)
        length += 1
    if not raw:
        end = _End(_VERSION, length, spec_to_plain(spec or UNKNOWN))
        out.write(framed(_END + msgspec.msgpack.encode(end), checksum))

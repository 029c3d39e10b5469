"""The layout of a flow's rows in an LMDB file.

Row 12 has the key ``b"0000000012"``; its value is padding, the encoded row and a checksum. The
header has a key of its own and is written in one transaction with the rows that it counts. Files
of version 1 have no padding, and a CRC-32 as checksum.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import attrs
import msgspec
from xxhash import xxh3_64, xxh3_64_digest, xxh3_64_intdigest

from flowdsl.elements.specs import UNKNOWN, Spec, join, spec_of
from flowdsl.errors import SourceError
from flowdsl.storage.byte_files import LocalFile, guard_file
from flowdsl.storage.codec import Decoder, SameTupleNames, encode, spec_from_plain, spec_to_plain
from flowdsl.storage.layout import NO_OUT, InPlace, OutArrays, Parts
from flowdsl.storage.lmdb.pages import BIG, MAX_LEAVES, PAGE_HEADER_BYTES, Page, Tree

VERSION = 2
MARGIN_BYTES = 1 << 17
"""Empty space after the last page, for programs that read the file with the LMDB library. That
library trusts 16-bit offsets in a page: in a damaged page they point at most this far, and
reading past the end of the file kills the process."""
KEY_OF_HEADER = b"__flowdsl__"
"""The key of the header; it sorts after the keys of all rows."""

_EXPECTED = "a file that flow.write_lmdb(path) made"
CHECKSUM_BYTES = 8
_ALIGNMENT = 16
_COMMIT_BYTES = 1 << 24
_COMMIT_ROWS = 1024
_COMMIT_SECONDS = 5.0


class LmdbHeader(msgspec.Struct, frozen=True):
    """The header of a file."""

    version: int
    length: int
    digest: int
    """The checksum of the rows' checksums: files with equal digests contain the same rows."""
    spec: dict[str, Any]
    complete: bool = True
    """True if the writer finished."""
    chain: str = ""
    """The digest of the chain whose elements ``cache`` keeps in the file; else empty."""


KEY_DIGITS = 10


def key_of(i: int) -> bytes:
    """Return the key of row ``i``, in ``KEY_DIGITS`` digits."""
    return b"%010d" % i


def seal(i: int, data: bytes) -> bytes:
    """Add a checksum to row ``i``: LMDB itself detects neither flipped bits nor swapped rows.

    Padding moves the row's end to an aligned address. An array at the end of the row is then
    aligned when it is read, and needs no copy.
    """
    padding = _sealed_size(len(data)) - CHECKSUM_BYTES - 1 - len(data)
    return b"".join((bytes((padding,)), bytes(padding), data, xxh3_64_digest(data, i)))


def _sealed_size(size: int) -> int:
    """Return the size of a row of this size with padding and checksum."""
    return -(-(1 + size) // _ALIGNMENT) * _ALIGNMENT + CHECKSUM_BYTES


def _frame(size: int) -> tuple[int, int]:
    """Return the numbers of bytes before and after a row of this size, on pages of its own."""
    return PAGE_HEADER_BYTES + _sealed_size(size) - CHECKSUM_BYTES - size, CHECKSUM_BYTES


def unseal(i: int, stored: bytes | memoryview) -> memoryview:
    """Return the bytes of row ``i``; raises SourceError if the checksum does not match."""
    if len(stored) > CHECKSUM_BYTES:
        view = memoryview(stored)[1 + stored[0] : -CHECKSUM_BYTES]
        if xxh3_64_digest(view, i) == stored[-CHECKSUM_BYTES:]:
            return view
    raise SourceError("its bytes are not those that were written: the checksum differs")


def _unseal_1(i: int, stored: bytes | memoryview) -> memoryview:
    view = memoryview(stored)[:-4]
    if crc32(view, i).to_bytes(4, "little") != stored[-4:]:
        raise SourceError("its bytes are not those that were written: the checksum differs")
    return view


_Unseal: TypeAlias = Callable[[int, bytes | memoryview], memoryview]
_UNSEAL: dict[int, _Unseal] = {1: _unseal_1, VERSION: unseal}


_NODE_OF_ROW = struct.Struct("=HHHH10sQ")
"""The low and high half of a size, flags, key length, key, and the page of a large row."""
_KEY_END = _NODE_OF_ROW.size - 8
_STRIDES_PER_LEAF = 8
"""Leaves are cached by row number divided by a stride, an eighth of the rows of a leaf."""
_MAX_STRIDES = _STRIDES_PER_LEAF * MAX_LEAVES

_OF_ANOTHER = (
    "fl.from_tensorpack_lmdb(path) reads a file of tensorpack, fl.from_lmdb_raw(path) a store of "
    "any other program"
)


class _Leaf(NamedTuple):
    """A leaf, and the range of rows that it may have: from ``first`` up to ``end``."""

    first: int
    end: int
    page: Page | None


class _LargeRow(NamedTuple):
    """A row on pages of its own."""

    page: int
    """The number of the first page."""
    size: int


class RowsFile(Tree):
    """A file written by ``write_lmdb``, open for reading."""

    def __init__(self, path: str, trusted: bool = False, file: LocalFile | None = None) -> None:
        super().__init__("from_lmdb", path, _EXPECTED, file)
        self._trusted = trusted
        self._unseal: _Unseal = unseal
        self._decode = Decoder(trusted)
        self._stride = max(1, self.entries // max(1, self._rows.leaves) // _STRIDES_PER_LEAF)
        self._leaves: dict[int, _Leaf] = {}
        self._leaf = _Leaf(first=0, end=0, page=None)
        self._in_place = InPlace(_frame, trusted)
        needed = (self._last_page + 1) * self._page_size + MARGIN_BYTES
        if self._file.size < needed:
            raise SourceError(
                f"from_lmdb: {self.path!r} is cut short, or is not {_EXPECTED}: it "
                f"has {self._file.size} bytes and needs {needed}; {_OF_ANOTHER}"
            )

    def header(self) -> tuple[LmdbHeader, Spec]:
        """Return the file's header and spec; raises SourceError if they are invalid."""
        try:
            header = self._read_header()
            known = header.version in _UNSEAL
            spec = spec_from_plain(header.spec) if known else UNKNOWN
        except (
            *(SourceError, msgspec.MsgspecError),
            *(KeyError, TypeError, ValueError, RecursionError),
        ) as error:
            raise SourceError(
                f"from_lmdb: {self.path!r} has no valid flowdsl header; expected {_EXPECTED}; "
                f"{_OF_ANOTHER}"
            ) from error
        if not known:
            raise SourceError(
                f"from_lmdb: {self.path!r} has format version {header.version}, but this "
                f"flowdsl reads only versions up to {VERSION}"
            )
        rows = self.entries - 1
        if rows != header.length:
            raise SourceError(
                f"from_lmdb: {self.path!r} is damaged: its header says {header.length} rows, "
                f"but it holds {rows}"
            )
        self._unseal = _UNSEAL[header.version]
        some = {0, rows // 2, rows - 1} if rows else set[int]()
        checksums = {i: self._checksum_of(i) for i in some}
        guard_file(self._file, partial(_has_rows, rows, header.digest, checksums))
        return header, spec

    def _checksum_of(self, i: int) -> bytes:
        """Return the last bytes of a row, which contain its checksum; empty if it is damaged."""
        try:
            return bytes(self._stored(i)[-CHECKSUM_BYTES:])
        except SourceError:
            return b""

    def _read_header(self) -> LmdbHeader:
        stored = self.get(KEY_OF_HEADER) or b""
        try:
            data = unseal(0, stored)
        except SourceError:
            data = _unseal_1(0, stored)
        return msgspec.msgpack.decode(data, type=LmdbHeader)

    @property
    def is_current(self) -> bool:
        """True if rows are stored as this version of flowdsl writes them."""
        return self._unseal is unseal

    def row(self, i: int, out: OutArrays = NO_OUT) -> Any:
        """Return row ``i``, its arrays read into ``out`` if possible.

        Raises:
            SourceError: It is damaged.
        """
        try:
            found = self._look_up(i)
            if not isinstance(found, _LargeRow):
                return self._decode(self._unseal(i, found))
            size = PAGE_HEADER_BYTES + found.size
            row = self._in_place.row(size, out, partial(self._fill, i, *found))
            if row is not None:
                return row
            data = self._unseal(i, self._on_pages(*found, key_of(i)))
            row = self._decode(data)
            if out and self._unseal is unseal:
                self._in_place.guess(row, data)
            return row
        except SourceError as error:
            if self.changed():
                raise SourceError(
                    f"{self.path!r} has changed since it was opened, and its original "
                    f"row {i} is gone: build a new flow"
                ) from error
            raise SourceError(f"{self.path!r}: row {i} cannot be read: {error}") from error

    def _fill(
        self, i: int, number: int, size: int, start: bytearray, parts: Parts, checksum: bytearray
    ) -> bool:
        """Read a large row to buffers; return False if it is not the row that was written."""
        if not self._value_into(number, size, [start, *parts, checksum]):
            return False
        digest = xxh3_64(seed=i)
        for part in parts:
            digest.update(part)
        padding = len(start) - PAGE_HEADER_BYTES - 1
        return digest.digest() == checksum and start[PAGE_HEADER_BYTES] == padding

    def _stored(self, i: int) -> bytes | memoryview:
        """Return the stored bytes of a row."""
        found = self._look_up(i)
        return self._on_pages(*found, key_of(i)) if isinstance(found, _LargeRow) else found

    def _look_up(self, i: int) -> bytes | memoryview | _LargeRow:
        """Return the stored bytes of a row, unless it is large."""
        leaf = self._leaf
        if not leaf.first <= i < leaf.end:
            leaf = self._leaf = self._leaf_with(i)
        first, _, page = leaf
        key, slot = b"%010d" % i, i - first  # the rows of a leaf are consecutive
        if page is not None and 0 <= slot < len(page.offsets):
            begin = page.offsets[slot]
            if begin + _NODE_OF_ROW.size <= len(page.data):
                low, high, flags, _, own, number = _NODE_OF_ROW.unpack_from(page.data, begin)
                size, begin = low | high << 16, begin + _KEY_END
                if own == key and flags == BIG:
                    return _LargeRow(number, size)
                if own == key and not flags and begin + size <= len(page.data):
                    return page.data[begin : begin + size]
        stored = None if page is None else self._value_at(page, key)
        if stored is None:
            raise SourceError("it is missing")
        return stored

    def _leaf_with(self, i: int) -> _Leaf:
        """Return the leaf that contains row ``i``."""
        stride = i // self._stride
        leaf = self._leaves.get(stride)
        if leaf is not None and leaf.first <= i < leaf.end:
            return leaf
        first, end, page = self.find(key_of(i))
        leaf = _Leaf(
            int(first) if first.isdigit() else 0,
            int(end) if end is not None and end.isdigit() else sys.maxsize,
            page,
        )
        if len(self._leaves) >= _MAX_STRIDES:
            self._leaves = {}
        self._leaves[stride] = leaf
        return leaf


def _has_rows(
    length: int, digest: int, checksums: dict[int, bytes], file: LocalFile, size: int
) -> bool:
    """Return True if a modified file still begins with these rows: it may have grown.

    The digest of the header covers all rows. After an append it covers more rows, so some of the
    original rows are compared instead.
    """
    if size < file.size:
        return False
    file.size = size
    now = RowsFile(file.path, file=file)
    header = now._read_header()
    if header.length <= length:
        return (header.length, header.digest) == (length, digest)
    return all(now._checksum_of(i) == checksum for i, checksum in checksums.items())


@attrs.define(eq=False)
class Batch:
    """Rows to write in one transaction, and the state from which the header is computed."""

    trusted: bool
    length: int = 0
    """The number of rows, including those written before."""
    digest: int = 0
    stored: Spec | None = None
    """The spec in the header before this writer."""
    _spec: Spec | None = None
    _tuple_names: SameTupleNames = attrs.field(factory=SameTupleNames)
    _pairs: list[tuple[bytes, bytes]] = attrs.field(factory=list)
    _bytes: int = 0
    _due: float = attrs.field(factory=lambda: monotonic() + _COMMIT_SECONDS)

    def __attrs_post_init__(self) -> None:
        if self.stored is not None:
            self._tuple_names.check(self.stored)

    def add(self, row: object) -> None:
        """Add the next row; raises SpecMismatch if it cannot be written."""
        sealed = seal(self.length, encode(row, self.trusted))
        seen = spec_of(row)
        self._tuple_names.check(seen)
        self._spec = seen if self._spec is None else join(self._spec, seen)
        self.digest = xxh3_64_intdigest(sealed[-CHECKSUM_BYTES:], self.digest)
        self._pairs.append((key_of(self.length), sealed))
        self._bytes += len(sealed)
        self.length += 1

    @property
    def full(self) -> bool:
        """True if the batch must be written now, to limit memory."""
        return self._bytes >= _COMMIT_BYTES or len(self._pairs) == _COMMIT_ROWS

    @property
    def due(self) -> bool:
        """True if the batch should be written now, to limit what a killed process loses."""
        return self.full or monotonic() > self._due

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return the rows to write, and clear the batch."""
        pairs, self._pairs, self._bytes = self._pairs, [], 0
        self._due = monotonic() + _COMMIT_SECONDS
        return pairs

    def header(self, complete: bool, chain: str = "") -> tuple[bytes, bytes]:
        """Return the header for all rows so far."""
        spec = spec_to_plain(UNKNOWN if self._spec is None else self._spec)
        if self.stored is not None:
            both = self.stored if self._spec is None else join(self.stored, spec_from_plain(spec))
            spec = spec_to_plain(both)
        header = LmdbHeader(VERSION, self.length, self.digest, spec, complete, chain)
        return KEY_OF_HEADER, seal(0, msgspec.msgpack.encode(header))

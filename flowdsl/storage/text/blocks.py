"""Random access to the rows of text files: an index of blocks, and a reader of rows.

An index of every row would be larger than a file of short lines. Instead, rows are grouped into
blocks: a block contains the rows that begin in one stretch of 8 KB. The index then takes about
0.3% of the file and is sent with the flow.

Rows that are read in order are parsed by whole blocks, which is fastest. Doing that in random order
would parse hundreds of rows for each one, so there a row is found in the bytes of its block, and
parsed alone. If a block has a row that cannot be parsed, its rows are parsed in short groups, and
the rows of a failing group singly: each row is parsed a few times, however many are bad.
"""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Generic, Literal, Protocol, TypeVar

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.errors import FlowError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import IndexedSource, T
from flowdsl.storage.byte_files import ByteFile, LocalFile, guard_file, open_file
from flowdsl.storage.compression import PIECE, Inflated
from flowdsl.storage.file_source import file_has_changed
from flowdsl.storage.index import Shards, Table, table_of
from flowdsl.storage.paths import is_url, title_of
from flowdsl.storage.read_ahead import ReadAhead
from flowdsl.storage.text.opening import TextCompression, open_text
from flowdsl.storage.text.syntax import RowEnds, Syntax

T_co = TypeVar("T_co", covariant=True)


class Rows(Protocol[T_co]):
    """Rows that a parser has found; getting one may do the rest of the work, or fail."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> T_co: ...


STRETCH = 1 << 13
"""The size of the byte range in which the rows of one block begin."""

_INDEX_VERSION = 5
_MAX_BLOCKS = 8
"""The most blocks that a read in order parses together."""
_NEAR_ROWS = 16
"""Rows at most this far after the latest row are read in order: parsing a block takes about as long
as parsing this number of its rows alone."""
_GROUP_ROWS = 32
"""The number of rows that are parsed together if their block cannot be parsed as a whole."""
_UNPARSED_BYTES = 1 << 24
"""The bytes of blocks that a process caches while rows are read at random."""
_READ_BYTES = 1 << 21
"""The size of the pieces in which a file is scanned."""
_FILES_OPEN = 16
_INFLATED_OPEN = 256
"""The limit for compressed files: one that is opened again is decompressed from its beginning."""
_BOM = b"\xef\xbb\xbf"

# -- files and their blocks ------------------------------------------------------------------------


@attrs.frozen
class TextFile:
    """A file as it was when the flow was built, with the index of its blocks."""

    path: str
    stamp: str = attrs.field(repr=False)
    digest: int
    """The digest of the bytes of the file, as they are stored."""
    compression: Literal["gzip"] | None
    blocks: NDArray[np.int64] = attrs.field(eq=False, repr=False)
    """A column per block, with its first byte, its first row and the number of lines before it.

    The last column contains the file's size, rows and lines: the shape is (3, blocks + 1).
    """

    @property
    def size(self) -> int:
        """The length of its content in bytes."""
        return int(self.blocks[0, -1])

    @property
    def rows(self) -> int:
        return int(self.blocks[1, -1])


def text_file(
    operator: str,
    path: str,
    compression: TextCompression = "infer",
    syntax: Syntax | None = None,
    bom: bool = False,
    empty: bool = True,
) -> TextFile:
    """Index a text file: a row is a line, or ends where its syntax says.

    With ``bom``, a UTF-8 byte order mark at the beginning is skipped. Without ``empty``, empty
    lines are not rows.

    Raises:
        SourceError: The file is missing, damaged or not text, its last quote is never closed, or a
            quote that spans several lines is closed within a cell.
    """
    index_key = f"text {_INDEX_VERSION} {STRETCH} {syntax} {bom} {empty}"
    return indexed(
        operator,
        path,
        compression,
        index_key,
        columns=3,
        scan=lambda file: scan(operator, file, syntax, bom, empty),
    )


def indexed(
    operator: str,
    path: str,
    compression: TextCompression,
    index_key: str,
    columns: int,
    scan: Callable[[ByteFile], Table],
) -> TextFile:
    """Index a text file by a function that finds the blocks in its content.

    A stored index with another ``index_key`` is not used: the key names all that affects it.

    Raises:
        SourceError: The file is missing, compressed in another way, or not text.
    """
    opened = open_text(operator, path, compression)

    def blocks(file: ByteFile) -> Table:
        table = scan(opened.content)
        if opened.compression is None:
            return table
        return table.of(digest_of(operator, file))  # of the stored bytes: a scan sees others

    table = table_of(opened.file, index_key, columns, blocks)
    stamp = opened.file.stamp
    return TextFile(path, stamp, table.digest, opened.compression, table.columns)


def _pieces(operator: str, file: ByteFile) -> Iterator[tuple[int, bytes]]:
    start = 0
    while data := file.read(start, _READ_BYTES):
        yield start, data
        start += len(data)
    if start != file.size:  # the size of compressed content is known only now
        raise SourceError(f"{operator}: {file.path!r} was cut off while it was read")


def scan(
    operator: str,
    file: ByteFile,
    syntax: Syntax | None = None,
    bom: bool = False,
    empty: bool = True,
) -> Table:
    """Find the blocks of a file, in the form of ``TextFile.blocks``.

    Raises:
        SourceError: The file is truncated while it is read, its last quote is never closed, or a
            quote that spans several lines is closed within a cell.
    """
    digest = xxhash.xxh3_64()
    begin = len(_BOM) if bom and file.read(0, len(_BOM)) == _BOM else 0
    parts = [np.array([[begin], [0], [0]])]
    row = line = 0
    last_start, last_line = begin, 0  # the first byte of the row that is not finished, its line
    last_comment = -1
    previous_byte = ord("\n")
    row_ends = None if syntax is None else RowEnds(syntax)
    for start_of_piece, piece in _pieces(operator, file):
        digest.update(piece)
        offset, data = max(start_of_piece, begin), piece[max(0, begin - start_of_piece) :]
        if not data:
            continue
        codes = np.frombuffer(data, np.uint8)
        if row_ends is None:
            ends = np.flatnonzero(codes == ord("\n"))
            lines, comments = line + np.arange(1, len(ends) + 1), ends[:0]
            line += len(ends)
        else:
            found = row_ends.find(codes, file.read(offset + len(data), 1))
            lines = line + np.arange(1, len(found.ends) + 1)
            ends, lines_of_rows = found.ends[found.ends_row], lines[found.ends_row]
            quotes = found.quotes_within_cells
            rows_at = np.append(last_line, lines_of_rows)[np.searchsorted(ends, quotes)]
            lines_at = line + np.searchsorted(found.ends, quotes)
            for start, end in np.stack([rows_at, lines_at], 1)[rows_at < lines_at]:
                raise SourceError(
                    f"{operator}: {file.path!r}: the row that begins on line {start + 1} has a "
                    f"quote that is closed on line {end + 1}, in the middle of a cell, so it is "
                    f"unclear where rows end; double the quotes in a quoted cell; "
                    f"{_other_quotes(syntax)}"
                )
            line += len(found.ends)
            lines, comments = lines_of_rows, found.comments + offset
        starts = ends + (offset + 1)  # of the rows after those that end in this piece
        if len(starts):
            opens_block = np.diff(starts // STRETCH, prepend=last_start // STRETCH) > 0
            rows = row + np.arange(1, len(starts) + 1)
            if not empty:
                byte_before_newline = codes[ends - 1]
                if ends[0] == 0:  # it is in the previous piece
                    byte_before_newline[0] = previous_byte
                row_starts = np.concatenate([[last_start], starts[:-1]])
                sizes = starts - row_starts
                is_no_row = (sizes == 1) | ((sizes == 2) & (byte_before_newline == ord("\r")))
                is_no_row |= np.isin(row_starts, np.append(comments, last_comment))
                rows -= np.cumsum(is_no_row)
            parts.append(np.stack([starts, rows, lines])[:, opens_block])
            row, last_start, last_line = int(rows[-1]), int(starts[-1]), int(lines[-1])
        if len(comments):
            last_comment = int(comments[-1])
        previous_byte = data[-1]
    if row_ends is not None and row_ends.is_open:
        raise SourceError(
            f"{operator}: {file.path!r}: the row that begins on line {last_line + 1} has a quote "
            f"that is never closed; {_other_quotes(syntax)}"
        )
    rest = file.size - last_start
    is_row = rest > 1 or (rest and (empty or previous_byte != ord("\r")))
    if is_row and last_start != last_comment:  # the last row has no newline
        row += 1
    end = np.array([[file.size], [row], [line]])
    return Table(np.concatenate([*parts, end], 1), digest.intdigest())


def _other_quotes(syntax: Syntax | None) -> str:
    """Return the part of a message that names the arguments for quotes of another meaning."""
    has_escape = syntax is not None and syntax.escape is not None
    also = "" if has_escape else ", escapechar='\\\\' those behind a backslash"
    return f"quotechar=None reads quotes as characters{also}"


def digest_of(operator: str, file: ByteFile) -> int:
    """Return a digest of all bytes of a file."""
    digest = xxhash.xxh3_64()
    for _, data in _pieces(operator, file):
        digest.update(data)
    return digest.intdigest()


# -- bytes to rows ---------------------------------------------------------------------------------


def checked_encoding(operator: str, encoding: object, marks: str = "") -> str:
    """Check an encoding for text files, and return its normalised name.

    Files are searched for newlines and the characters in ``marks`` without decoding them, and each
    line is decoded alone. So these characters must be single bytes that no other
    character contains, and the text of a line must not depend on the lines before it.

    Raises:
        InvalidFlow: The encoding does not exist, or does not have these properties.
    """
    if not isinstance(encoding, str):
        raise InvalidFlow(f"{operator}: encoding must be a str, got {encoding!r}")
    try:
        name = codecs.lookup(encoding).name.removesuffix("-sig")
        plain = 'a\n"b'.encode(name) == b'a\n"b'
        shared = _shared_bytes(name) if plain else frozenset()
    except (LookupError, UnicodeError) as error:
        raise InvalidFlow(f"{operator}: encoding {encoding!r}: {error}") from error
    advice = "convert the file first, e.g. with iconv -t UTF-8"
    if not plain:
        raise InvalidFlow(
            f"{operator}: encoding must be one in which a newline is the byte 10, such as utf-8 or "
            f"latin-1, got {encoding!r}; {advice}"
        )
    if shared is None and (marks or not _is_decoded_by_line(name)):
        raise InvalidFlow(
            f"{operator}: encoding {encoding!r} writes other characters with the bytes of ASCII "
            f"characters, so that a file cannot be split into rows before it is decoded; {advice}"
        )
    for mark in f"\n\r{marks}":
        if ord(mark) in (shared or ()) or mark.encode(name, "replace") != mark.encode():
            raise InvalidFlow(
                f"{operator}: {mark!r} cannot be found in a file with encoding {encoding!r}, where "
                f"its byte is a part of other characters; {advice}"
            )
    return name


@cache
def _shared_bytes(encoding: str) -> frozenset[int] | None:
    """Return the bytes below 128 that occur in characters outside of ASCII.

    Return None for an encoding such as ISO-2022-JP, where an escape sequence, a *shift*, changes
    which characters the bytes after it encode.
    """
    if encoding in _WITHOUT_SHARED_BYTES:
        return frozenset()
    shared: set[int] = set()
    for k in range(128, 1 << 16):
        character = chr(k)
        data = character.encode(encoding, "ignore")
        if data and min(data) < 128 and data.decode(encoding, "ignore") == character:
            if data[0] < 128 and len(data) > 1:
                return None
            shared.update(data)
    return frozenset(byte for byte in shared if byte < 128)


_WITHOUT_SHARED_BYTES = {"utf-8", "ascii", "iso8859-1", "cp1252"}
"""Common encodings, for which the check of 30 ms is skipped."""


def _is_decoded_by_line(encoding: str) -> bool:
    """Return True if each line can be decoded alone, because shifts end with each line."""
    for character in "\xe9\u3042\uac00\u4e00":
        lines = f"{character}\n{character}".encode(encoding, "ignore").split(b"\n")
        if [line.decode(encoding, "ignore") for line in lines] not in ([character] * 2, [""] * 2):
            return False
    return True


def decoded(data: bytes, encoding: str, syntax: Syntax | None = None) -> list[str]:
    """Decode a block into rows without their newlines; empty lines are rows.

    Raises:
        UnicodeDecodeError: The block is not valid in this encoding.
    """
    if _shared_bytes(encoding) is None:
        lines = data.split(b"\n")
        return [_unshifted(line, encoding) for line in (lines if lines[-1] else lines[:-1])]
    text = data.decode(encoding)
    rows = text.split("\n")
    if not rows[-1]:
        del rows[-1]
    quotes = None if syntax is None else syntax.quotes
    if quotes is None or quotes.mark not in text:
        return rows
    # If every quote begins or ends a cell, it is faster to count the quotes of each line.
    return _joined(rows, quotes.is_odd if quotes.all_quote_cells(text) else quotes.is_open)


def _unshifted(line: bytes, encoding: str) -> str:
    """Decode a line; it is an error if the line ends within a shift to other characters."""
    decoder = codecs.getincrementaldecoder(encoding)()
    begin = decoder.getstate()
    text = decoder.decode(line + b"\n", final=True)  # some encodings end shifts at a newline
    if decoder.getstate() != begin:
        why = "the line ends within a shift to other characters"
        raise UnicodeDecodeError(encoding, line, len(line) - 1, len(line), why)
    return text[:-1]


_EMPTY_LINES = (b"", b"\n", b"\r", b"\r\n")


def decoded_by_row(data: bytes, encoding: str, syntax: Syntax) -> list[str]:
    """Decode a block into rows with their newlines; empty lines and comments are not rows.

    Raises:
        UnicodeDecodeError: The block is not valid in this encoding.
    """
    if data.find(b"\n") in (-1, len(data) - 1):  # one line, as in random access
        is_comment = syntax.comment is not None and data.startswith(syntax.comment.encode())
        return [] if is_comment or data in _EMPTY_LINES else [data.decode(encoding)]
    bounds = _bounds(data, syntax, empty=False)
    return [data[start:end].decode(encoding) for start, end in bounds.T.tolist()]


def _joined(lines: list[str], is_open: Callable[[str, bool], bool]) -> list[str]:
    """Join lines into rows: a cell that is open at the end of a line continues on the next."""
    rows: list[str] = []
    pending: list[str] = []
    for line in lines:
        continues = is_open(line, bool(pending))
        if pending or continues:
            pending.append(line)
        if not continues:
            rows.append("\n".join(pending) if pending else line)
            pending = []
    if pending:
        rows.append("\n".join(pending))
    return rows


def _bounds(data: bytes, syntax: Syntax | None, empty: bool) -> NDArray[np.int64]:
    """Return the first byte and the end of each row, newline included; shape (2, rows).

    ``data`` begins with a row. Without ``empty``, empty lines are not rows.
    """
    codes = np.frombuffer(data, np.uint8)
    if syntax is None:
        ends, comments = np.flatnonzero(codes == ord("\n")), _NONE
    else:
        found = RowEnds(syntax).find(codes, b"")
        ends, comments = found.ends[found.ends_row], found.comments
    edges = np.concatenate([_ZERO, ends + 1])
    if edges[-1] < len(data):  # the last row has no newline
        edges = np.append(edges, len(data))
    bounds = np.stack([edges[:-1], edges[1:]])
    if len(comments):
        bounds = bounds[:, ~np.isin(bounds[0], comments)]
    if empty or not (data[:1] in (b"\n", b"\r") or b"\n\n" in data or b"\n\r" in data):
        return bounds
    begins, sizes = codes[bounds[0]], np.diff(bounds, axis=0)[0]
    has_one_byte = (sizes == 1) | ((sizes == 2) & (codes[bounds[1] - 1] == ord("\n")))
    is_empty = (begins == ord("\n")) | ((begins == ord("\r")) & has_one_byte)
    return bounds[:, ~is_empty]


_NONE = np.zeros(0, np.int64)
_ZERO = np.zeros(1, np.int64)


class Parser(Protocol[T_co]):
    """Parses the bytes of rows into values."""

    @property
    def syntax(self) -> Syntax | None:
        """The syntax that determines where rows end; None if each line is a row."""
        ...

    @property
    def empty(self) -> bool:
        """True if an empty line is a row."""
        ...

    def parse(self, data: bytes, skip: int = 0) -> Rows[T_co]:
        """Parse the rows of a block, except the first ``skip`` rows.

        Raises:
            FlowError, ValueError: A row cannot be parsed; the message may name the cell.
        """
        ...


# -- reading by number -----------------------------------------------------------------------------


@attrs.frozen
class _Location:
    """Where a row is, as messages say it."""

    path: str
    line: int
    end: int
    """The last line of the row."""
    byte: int

    def __str__(self) -> str:
        lines = f"line {self.line}" if self.end == self.line else f"lines {self.line} to {self.end}"
        return f"{self.path!r}, {lines} (byte {self.byte})"


class _Block:
    """The bytes of consecutive rows of a file, and where they are."""

    def __init__(self, file: TextFile, first: int, end: int, read: Callable[[int, int], bytes]):
        """Read the blocks from ``first`` to ``end`` of a file."""
        (start, self.row, self._line), (stop, rows, _) = file.blocks[:3, [first, end]].T.tolist()
        self.path, self._byte, self.rows = file.path, start, rows - self.row
        self.data = read(start, stop)

    def bounds(self, parser: Parser[Any]) -> NDArray[np.int64]:
        """Return the first byte and the end of each row; shape (2, rows)."""
        bounds = _bounds(self.data, parser.syntax, parser.empty)
        if bounds.shape[1] != self.rows:
            raise file_has_changed(self.path)
        return bounds

    def location(self, start: int, end: int) -> _Location:
        """Return the location of the row at these bytes of ``data``."""
        line = self._line + self.data.count(b"\n", 0, start) + 1
        more = self.data[start:end].rstrip(b"\n").count(b"\n")
        return _Location(self.path, line, line + more, self._byte + start)


class _LazyRows(Generic[T]):
    """Rows that are parsed when they are accessed, so that only a damaged one fails."""

    def __init__(self, rows: Sequence[Callable[[], T]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int, /) -> T:
        return self._rows[i]()


class _Blocks(Generic[T]):
    """Reads rows by index, in one process: alone, or one or several blocks at a time."""

    def __init__(
        self, files: Sequence[TextFile], skip: int, parser: Parser[T], name: str, kept: int
    ) -> None:
        self._files, self._skip, self._parser, self._name = files, skip, parser, name
        self._cache_bytes_left = kept
        self._kept: dict[tuple[int, int], tuple[int, Rows[T]]] = {}
        self._unparsed_bytes_left = _UNPARSED_BYTES
        self._unparsed: dict[tuple[int, int], tuple[_Block, NDArray[np.int64]]] = {}
        self._shards = Shards([file.rows - skip for file in files])
        most = _FILES_OPEN if not any(file.compression for file in files) else _INFLATED_OPEN
        self._opened = lru_cache(most)(lambda k: _read_ahead(name, files[k]))
        self._latest_row = -1
        self._count = 1
        """How many blocks the next read in order parses; it doubles, up to ``_MAX_BLOCKS``."""

    def with_row(self, i: int) -> tuple[int, Rows[T]]:
        """Return consecutive rows that include row ``i``, and the index of the first.

        If rows are read at random, only row ``i`` is returned. If they are read in order, the rows
        of its block and of some following blocks are returned.
        """
        k, j = self._shards.find(i)
        file, row = self._files[k], j + self._skip
        number = int(file.blocks[1].searchsorted(row, "right")) - 1
        if (k, number) in self._kept:
            return self._kept[k, number]
        in_order = 0 < i - self._latest_row <= _NEAR_ROWS
        size = int(file.blocks[0, number + 1] - file.blocks[0, number])
        is_kept = size <= self._cache_bytes_left
        if not in_order and not is_kept:
            self._latest_row, self._count = i, 1
            block, bounds = self._unparsed.get((k, number)) or self._read(k, number)
            return i, self._alone(block, *bounds[:, row - block.row].tolist())
        count = 1 if is_kept else self._count  # blocks are kept singly
        self._count = min(2 * count, _MAX_BLOCKS)
        last = min(number + count, file.blocks.shape[1] - 1)
        block = _Block(file, number, last, self._opened(k).read)
        skip = max(0, self._skip - block.row)  # rows of a header at the beginning of the block
        rows = self._rows(block, skip)
        row_in_rows = row - block.row - skip
        first = i - row_in_rows
        self._latest_row = first + len(rows) - 1
        if is_kept:
            self._cache_bytes_left -= size
            self._kept[k, number] = first, rows
        return first, rows

    def _read(self, k: int, number: int) -> tuple[_Block, NDArray[np.int64]]:
        """Read one block and find its rows; it is kept while there is room."""
        block = _Block(self._files[k], number, number + 1, self._opened(k).read)
        found = block, block.bounds(self._parser)
        size = len(block.data) + found[1].nbytes
        if size <= self._unparsed_bytes_left:
            self._unparsed_bytes_left -= size
            self._unparsed[k, number] = found
        return found

    def _rows(self, block: _Block, skip: int) -> Rows[T]:
        """Parse the rows of a block, except the first ``skip`` ones.

        A row that cannot be parsed raises its error when it is accessed.
        """
        rows = self._together(block.data, block.rows, skip)
        if rows is not None:
            return rows
        bounds = block.bounds(self._parser)[:, skip:]
        groups = (bounds[:, k : k + _GROUP_ROWS] for k in range(0, bounds.shape[1], _GROUP_ROWS))
        return _LazyRows([row for group in groups for row in self._group(block, group)])

    def _group(self, block: _Block, bounds: NDArray[np.int64]) -> Iterator[Callable[[], T]]:
        """Parse a few rows of a block: together, or each when it is accessed."""
        rows = self._together(block.data[bounds[0, 0] : bounds[1, -1]], bounds.shape[1])
        for k, (start, end) in enumerate(bounds.T.tolist()):
            if rows is not None:
                yield partial(rows.__getitem__, k)
            else:
                yield partial(self._row, block, start, end)

    def _row(self, block: _Block, start: int, end: int) -> T:
        return self._alone(block, start, end)[0]

    def _together(self, data: bytes, count: int, skip: int = 0) -> Rows[T] | None:
        """Parse ``count`` rows, except the first ``skip`` ones; None if one of them fails."""
        try:
            rows = self._parser.parse(data, skip)
        except (FlowError, ValueError):
            return None
        return rows if len(rows) == count - skip else None

    def _alone(self, block: _Block, start: int, end: int) -> Rows[T]:
        """Parse one row of a block; an error names its location."""
        try:
            rows = self._parser.parse(block.data[start:end])
        except SpecMismatch as error:
            raise SpecMismatch(f"{block.location(start, end)}: {error}") from error
        except UnicodeDecodeError as error:
            location = block.location(start, end)
            raise SourceError(
                f"{location}: byte {location.byte + error.start} is not {error.encoding}: "
                f"{error.reason}; pass encoding= if the file has another one"
            ) from error
        except (FlowError, ValueError) as error:
            raise SourceError(f"{block.location(start, end)}: {error}") from error
        if len(rows) != 1:
            raise SourceError(
                f"{block.location(start, end)}: expected one row here, and the parser found "
                f"{len(rows)}"
            )
        return rows


def reader(
    files: Sequence[TextFile], skip: int, parser: Parser[T], name: str, kept: int = 0
) -> Callable[[int], T]:
    """Return a function that reads rows by index, with the latest block and ``kept`` bytes cached.

    ``name`` is the operator's name in error messages.

    Raises:
        SourceError: A local file changed after the flow was built; for a remote file, reading its
            rows raises the error.
    """
    for file in files:
        if not is_url(file.path):
            _open_unchanged(name, file)
    load = _Blocks(files, skip, parser, name, kept).with_row
    latest: tuple[int, Rows[T]] = (0, ())

    def read(i: int) -> T:
        nonlocal latest
        first, rows = latest  # together: another thread may replace ``latest``
        k = i - first
        if k >= 0:
            try:
                return rows[k]
            except IndexError:
                pass
        first, rows = latest = load(i)
        return rows[i - first]

    return read


def _read_ahead(name: str, known: TextFile) -> ReadAhead:
    file = _open_unchanged(name, known)
    if known.compression is None:
        return ReadAhead(file)
    return ReadAhead(Inflated(name, file, known.compression), PIECE)


def _open_unchanged(name: str, known: TextFile) -> ByteFile:
    file = open_file(name, known.path)
    if file.stamp != known.stamp and digest_of(name, file) != known.digest:
        raise file_has_changed(known.path)
    # Called if the file is modified while it is open: a touched file may have the same content.
    guard_file(file, partial(_is_same, name, known.digest))
    return file


def _is_same(name: str, digest: int, file: LocalFile, size: int) -> bool:
    return size == file.size and digest_of(name, file) == digest


# -- the node of a format --------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False, slots=False)
class FromBlocks(IndexedSource[T], Generic[T]):
    """The base of sources that read rows of text files by index."""

    files: tuple[TextFile, ...]

    @property
    @abstractmethod
    def operator(self) -> str:
        """The name of the source operator."""

    @property
    @abstractmethod
    def parser(self) -> Parser[T]:
        """The parser of blocks of rows."""

    @property
    def options(self) -> str:
        """All options that rows depend on besides the files, for the fingerprint."""
        return repr(self.parser)

    @property
    def skip(self) -> int:
        """The number of leading rows in each file to skip, such as a header."""
        return 0

    @property
    def kept(self) -> int:
        """The number of bytes that a process caches in addition to the latest block."""
        return 0

    @property
    def rows_together(self) -> int | None:
        """The average number of rows in a piece that is decompressed as a whole.

        None if no file is compressed, or if a process caches all rows.
        """
        sizes = [file.size for file in self.files]
        if sum(sizes) <= max(_UNPARSED_BYTES, self.kept):
            return None
        largest = max(self.files, key=lambda file: file.size)
        if largest.compression is None:
            return None
        return -(-largest.rows * PIECE // largest.size)

    @property
    def title(self) -> str:
        return title_of(self.operator, [file.path for file in self.files])

    @property
    def fingerprint(self) -> str:
        digests = b"".join(file.digest.to_bytes(8, "little") for file in self.files)
        digest = xxhash.xxh3_64_hexdigest(digests + self.options.encode(errors="surrogateescape"))
        return f"{self.title} of {self.length} rows {digest}"

    @property
    def length(self) -> int:
        return sum(file.rows - self.skip for file in self.files)

    def open(self) -> Callable[[int], T]:
        return reader(self.files, self.skip, self.parser, self.operator, self.kept)

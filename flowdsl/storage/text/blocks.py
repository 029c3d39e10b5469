"""Random access to the rows of text files: an index of blocks, and a reader of rows.

An index of every row would be larger than a file of short lines. Instead, rows are grouped into
blocks: a block contains the rows that begin in one stretch of 8 KB. The index then takes about
0.3% of the file and is sent with the flow.

Rows that are read in order are parsed by whole blocks, which is fastest. Doing that in random order
would parse hundreds of rows for each one, so there a row is found in the bytes of its block, and
parsed alone. If a block has a row that cannot be parsed, its rows are parsed in short runs, and the
rows of a failing run singly: each row is parsed a few times, however many are bad.
"""

from __future__ import annotations

import codecs
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Generic, Protocol, TypeVar, overload

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.errors import FlowError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import IndexedSource, T
from flowdsl.storage.byte_files import ByteFile, LocalFile, guard_file, open_file
from flowdsl.storage.file_source import file_has_changed
from flowdsl.storage.index import Shards, Table, table_of
from flowdsl.storage.paths import is_url, title_of
from flowdsl.storage.read_ahead import ReadAhead

T_co = TypeVar("T_co", covariant=True)

STRETCH = 1 << 13
"""The size of the byte range in which the rows of one block begin."""

_MAX_BLOCKS = 8
_NEAR_ROWS = 16
"""Rows at most this far after the latest row are read in order: parsing a block takes about as long
as parsing so many of its rows alone."""
_RUN_ROWS = 32
"""The rows that are parsed together in a block that cannot be parsed as a whole."""
_UNPARSED_BYTES = 1 << 24
"""The bytes of blocks that a process caches while rows are read at random."""
_READ_BYTES = 1 << 21
_FILES_OPEN = 16
_BOM = b"\xef\xbb\xbf"

_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
}
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

_STATELESS_ENCODINGS = {"utf-8", "ascii", "iso8859-1", "cp1252"}
"""Encodings whose lines may be decoded together. In other encodings, a shift state may continue
across lines, so the text of a line would depend on earlier lines."""


# -- quotes ----------------------------------------------------------------------------------------


@attrs.frozen
class Quotes:
    """The quoting of cells: a newline inside a quoted cell does not end the row.

    As in Python's ``csv``, a quote opens a cell only at the beginning of the cell. Any other quote
    is an ordinary character: if ``5",1`` opened a cell, it would swallow the following rows.
    """

    mark: str
    delimiter: str

    def marks(self, codes: NDArray[np.uint8], before: int, is_open: bool) -> NDArray[np.intp]:
        """Return the offsets of quotes that open and close cells, alternately.

        A doubled quote inside a cell counts as a closing and an opening one. ``before`` is the byte
        before ``codes[0]``; the caller passes a quote only where that quote closed a cell, so that
        a quote at offset 0 doubles it.
        """
        offsets = np.flatnonzero(codes == ord(self.mark))
        if not len(offsets):
            return offsets
        previous = codes[offsets - 1]
        if offsets[0] == 0:
            previous[0] = before
        begins = (previous == ord(self.delimiter)) | (previous == ord("\n"))
        if (begins | (previous == ord(self.mark)))[int(is_open) :: 2].all():
            return offsets
        kept: list[int] = []
        # offset of the latest closing quote; -1 is the byte before, -2 none
        last_closing = -1 if before == ord(self.mark) else -2
        for at, begins_cell in zip(offsets.tolist(), begins.tolist(), strict=True):
            if is_open or begins_cell or last_closing == at - 1:
                kept.append(at)
                last_closing = at if is_open else last_closing
                is_open = not is_open
        return np.array(kept, np.intp)

    def closed_within(
        self, codes: NDArray[np.uint8], marks: NDArray[np.intp], after: bytes, is_open: bool
    ) -> NDArray[np.intp]:
        """Return the quotes that close a cell although more text follows in the cell."""
        closing = marks[1 - int(is_open) :: 2]
        following = np.append(codes, np.frombuffer(after or b"\n", np.uint8))[closing + 1]
        return closing[
            ~np.isin(following, np.frombuffer(f"{self._ends}{self.mark}".encode(), np.uint8))
        ]

    @property
    def _ends(self) -> str:
        return f"{self.delimiter}\r\n"

    def all_quote_cells(self, text: str) -> bool:
        """Return True if all quotes delimit cells, so the faster ``is_odd`` suffices."""
        return _patterns(self).cells.fullmatch(text) is not None

    def is_odd(self, line: str, was_open: bool) -> bool:
        """Return ``is_open`` by counting quotes; valid if all quotes delimit cells."""
        return (line.count(self.mark) % 2 == 1) != was_open

    def is_open(self, line: str, was_open: bool) -> bool:
        """Return True if a cell is open at the end of a line; ``was_open``: at its beginning."""
        patterns, at = _patterns(self), 0
        if was_open:
            text = patterns.goes_on.match(line)
            if text is None or not text[1]:
                return True
            at = text.end()
        return any(not text[1] for text in patterns.opened.finditer(line, at))


@attrs.frozen
class _Patterns:
    goes_on: re.Pattern[str]
    """The rest of an open cell, and its closing quote if there is one."""
    opened: re.Pattern[str]
    """A quoted cell from its beginning, and its closing quote if there is one."""
    cells: re.Pattern[str]
    """Rows in which every quote delimits a cell."""


@cache
def _patterns(quotes: Quotes) -> _Patterns:
    q, d = re.escape(quotes.mark), re.escape(quotes.delimiter)
    text = f"(?:[^{q}]++|{q}{q})*+"
    cell = f"(?:{q}{text}{q}\\r?|[^{q}{d}\n]*+)"
    forms = f"{text}({q}?)", f"(?:^|{d}){q}{text}({q}?)", f"{cell}(?:[{d}\n]{cell})*+"
    return _Patterns(*map(re.compile, forms))


# -- files and their blocks ------------------------------------------------------------------------


@attrs.frozen
class TextFile:
    """A file as it was when the flow was built, with the index of its blocks."""

    path: str
    stamp: str = attrs.field(repr=False)
    digest: int
    blocks: NDArray[np.int64] = attrs.field(eq=False, repr=False)
    """Shape (3, blocks + 1): first byte, first row and number of lines before, a column per block.

    The last column holds the file's size, rows and lines.
    """

    @property
    def rows(self) -> int:
        return int(self.blocks[1, -1])


def text_file(
    operator: str, path: str, quotes: Quotes | None = None, bom: bool = False, empty: bool = True
) -> TextFile:
    """Index a text file: a row is a line, or ends at the first newline outside of quotes.

    With ``bom``, a UTF-8 byte order mark at the beginning is skipped. Without ``empty``, empty
    lines are not rows.

    Raises:
        SourceError: The file is missing or compressed, its last quote is never closed, or a quote
            that spans several lines is closed within a cell.
    """
    file = open_readable(operator, path)

    def blocks(file: ByteFile) -> Table:
        return scan(operator, file, quotes, bom, empty)

    table = table_of(file, f"text 3 {STRETCH} {quotes} {bom} {empty}", 3, blocks)
    return TextFile(path, file.stamp, table.digest, table.columns)


def open_readable(operator: str, path: str) -> ByteFile:
    """Open a file of uncompressed text.

    Raises:
        SourceError: The file is missing, compressed, or in UTF-16 or UTF-32.
    """
    file = open_file(operator, path)
    begin = file.read(0, 6)
    for magic, (form, command) in _COMPRESSED.items():
        if begin.startswith(magic):
            raise SourceError(
                f"{operator}: {path!r} is compressed by {form}, so its rows cannot be read by "
                f"number: decompress it first, e.g. with {command}"
            )
    if begin.startswith(_UTF16_BOMS):
        raise SourceError(
            f"{operator}: {path!r} begins like UTF-16 or UTF-32, where a newline is more "
            f"than one byte: convert it first, e.g. with iconv -t UTF-8"
        )
    return file


def _pieces(operator: str, file: ByteFile) -> Iterator[tuple[int, bytes]]:
    for start in range(0, file.size, _READ_BYTES):
        count = min(_READ_BYTES, file.size - start)
        data = file.read(start, count)
        if len(data) != count:
            raise SourceError(f"{operator}: {file.path!r} was cut off while it was read")
        yield start, data


def scan(
    operator: str,
    file: ByteFile,
    quotes: Quotes | None = None,
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
    is_open = False
    last_start, last_line = begin, 0  # of the latest row
    # The byte before a piece, and the same byte, but 0 for a quote that did not close a cell.
    previous_byte = previous_for_quotes = ord("\n")
    for offset, data in _pieces(operator, file):
        digest.update(data)
        codes = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(codes == ord("\n"))
        lines = line + np.arange(1, len(ends) + 1)
        line += len(ends)
        if quotes is not None:
            skip = begin if not offset else 0
            marks = quotes.marks(codes[skip:], previous_for_quotes, is_open) + skip
            after = file.read(offset + len(data), 1)
            outside = (np.searchsorted(marks, ends) + is_open) % 2 == 0
            within = quotes.closed_within(codes, marks, after, is_open)
            rows_at = np.append(last_line, lines[outside])[np.searchsorted(ends[outside], within)]
            lines_at = line - len(ends) + np.searchsorted(ends, within)
            for start, end in np.stack([rows_at, lines_at], 1)[rows_at < lines_at]:
                raise SourceError(
                    f"{operator}: {file.path!r}: the row that begins on line {start + 1} has a "
                    f"quote that is closed on line {end + 1}, in the middle of a cell, so it is "
                    f"unclear where rows end; double the quotes in a quoted cell; "
                    f"quotechar=None reads quotes as characters"
                )
            is_open = (is_open + len(marks)) % 2 == 1
            closes = len(marks) and marks[-1] == len(codes) - 1 and not is_open
            previous_for_quotes = data[-1] if closes or data[-1] != ord(quotes.mark) else 0
            ends, lines = ends[outside], lines[outside]
        starts = ends + (offset + 1)
        if len(starts):
            begins = np.diff(starts // STRETCH, prepend=last_start // STRETCH) > 0
            rows = row + np.arange(1, len(starts) + 1)
            if not empty:
                before = codes[ends - 1]
                if ends[0] == 0:
                    before[0] = previous_byte
                sizes = np.diff(starts, prepend=last_start)
                nothing = (sizes == 1) | ((sizes == 2) & (before == ord("\r")))
                rows -= np.cumsum(nothing)
            parts.append(np.stack([starts, rows, lines])[:, begins])
            row, last_start, last_line = int(rows[-1]), int(starts[-1]), int(lines[-1])
        previous_byte = data[-1]
    if is_open:
        raise SourceError(
            f"{operator}: {file.path!r}: the row that begins on line {last_line + 1} has a quote "
            f"that is never closed; quotechar=None reads quotes as characters"
        )
    rest = file.size - last_start
    if rest > 1 or (rest and (empty or previous_byte != ord("\r"))):  # the last row has no newline
        row += 1
    end = np.array([[file.size], [row], [line]])
    return Table(np.concatenate([*parts, end], 1), digest.intdigest())


def digest_of(operator: str, file: ByteFile) -> int:
    """Return a digest of all bytes of a file."""
    digest = xxhash.xxh3_64()
    for _, data in _pieces(operator, file):
        digest.update(data)
    return digest.intdigest()


# -- bytes to rows ---------------------------------------------------------------------------------


def checked_encoding(operator: str, encoding: object) -> str:
    """Check an encoding for text files, and return its normalised name.

    Raises:
        InvalidFlow: The encoding does not exist, or its newline is not one byte.
    """
    if not isinstance(encoding, str):
        raise InvalidFlow(f"{operator}: encoding must be a str, got {encoding!r}")
    try:
        name = codecs.lookup(encoding).name.removesuffix("-sig")
        plain = 'a\n"b'.encode(name) == b'a\n"b'
    except (LookupError, UnicodeError) as error:
        raise InvalidFlow(f"{operator}: encoding {encoding!r}: {error}") from error
    if not plain:
        raise InvalidFlow(
            f"{operator}: encoding must be one in which a newline is the byte 10, such as utf-8 or "
            f"latin-1, got {encoding!r}; convert the file first, e.g. with iconv -t UTF-8"
        )
    return name


def decoded(data: bytes, encoding: str, quotes: Quotes | None = None) -> list[str]:
    """Decode a block into rows, without their newlines.

    Raises:
        UnicodeDecodeError: The block is not valid in this encoding.
    """
    if encoding not in _STATELESS_ENCODINGS:
        return [
            data[start:end].removesuffix(b"\n").decode(encoding)
            for start, end in _bounds(data, quotes, empty=True).T.tolist()
        ]
    text = data.decode(encoding)
    rows = text.split("\n")
    if not rows[-1]:
        del rows[-1]
    if quotes is None or quotes.mark not in text:
        return rows
    return _joined(rows, quotes.is_odd if quotes.all_quote_cells(text) else quotes.is_open)


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


def _bounds(data: bytes, quotes: Quotes | None, empty: bool) -> NDArray[np.int64]:
    """Return the first byte and the end of each row, newline included, of bytes that begin a row.

    Shape (2, rows). Without ``empty``, empty lines are not rows.
    """
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if quotes is not None and quotes.mark.encode() in data:
        marks = quotes.marks(codes, ord("\n"), is_open=False)
        ends = ends[np.searchsorted(marks, ends) % 2 == 0]
    edges = np.concatenate([_ZERO, ends + 1])
    if edges[-1] < len(data):  # the last row has no newline
        edges = np.append(edges, len(data))
    bounds = np.stack([edges[:-1], edges[1:]])
    if empty or not (data[:1] in (b"\n", b"\r") or b"\n\n" in data or b"\n\r" in data):
        return bounds
    begins, sizes = codes[bounds[0]], np.diff(edges)
    is_return = (sizes == 1) | ((sizes == 2) & (codes[bounds[1] - 1] == ord("\n")))
    return bounds[:, (begins != ord("\n")) & ((begins != ord("\r")) | ~is_return)]


_ZERO = np.zeros(1, np.int64)


class Parser(Protocol[T_co]):
    """Parses the bytes of rows into values."""

    @property
    def quotes(self) -> Quotes | None:
        """The quoting of cells, in which a newline does not end a row; None if there is none."""
        ...

    @property
    def empty(self) -> bool:
        """True if an empty line is a row."""
        ...

    def parse(self, data: bytes, skip: int = 0) -> Sequence[T_co]:
        """Parse the rows of a block, except the first ``skip`` rows.

        Raises:
            FlowError, ValueError: A row cannot be parsed; the message may name the cell.
        """
        ...


# -- reading by number -----------------------------------------------------------------------------


@attrs.frozen
class _Place:
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
        bounds = _bounds(self.data, parser.quotes, parser.empty)
        if bounds.shape[1] != self.rows:
            raise file_has_changed(self.path)
        return bounds

    def place(self, start: int, end: int) -> _Place:
        """Return the place of the row at these bytes of ``data``."""
        line = self._line + self.data.count(b"\n", 0, start) + 1
        more = self.data[start:end].rstrip(b"\n").count(b"\n")
        return _Place(self.path, line, line + more, self._byte + start)


@attrs.frozen
class _Failing(Sequence[T]):
    """One row that cannot be parsed: accessing it raises the error."""

    parse: Callable[[], Sequence[T]]

    def __len__(self) -> int:
        return 1

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[T]: ...
    def __getitem__(self, i: int | slice) -> T | Sequence[T]:
        return self.parse()[i]


class _Parts(Sequence[T]):
    """Rows in several sequences, one after another."""

    def __init__(self, parts: Sequence[Sequence[T]]) -> None:
        self._parts, self._shards = parts, Shards([len(part) for part in parts])

    def __len__(self) -> int:
        return self._shards.length

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[T]: ...
    def __getitem__(self, i: int | slice) -> T | Sequence[T]:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        k, j = self._shards.find(i)
        return self._parts[k][j]


class _Blocks(Generic[T]):
    """Reads rows by index, in one process: alone, or one or several blocks at a time."""

    def __init__(
        self, files: Sequence[TextFile], skip: int, parser: Parser[T], name: str, kept: int
    ) -> None:
        self._files, self._skip, self._parser, self._name = files, skip, parser, name
        self._cache_bytes_left = kept
        self._kept: dict[tuple[int, int], tuple[int, Sequence[T]]] = {}
        self._unparsed_bytes_left = _UNPARSED_BYTES
        self._unparsed: dict[tuple[int, int], tuple[_Block, NDArray[np.int64]]] = {}
        self._shards = Shards([file.rows - skip for file in files])
        self._opened = lru_cache(_FILES_OPEN)(lambda k: ReadAhead(_unchanged(name, files[k])))
        self._latest_row = -1
        self._count = 1

    def with_row(self, i: int) -> tuple[int, Sequence[T]]:
        """Return consecutive rows that include row ``i``, and the index of the first.

        It is this row alone if rows are read at random. If they are read in order, it is the rows
        of its block and of some following blocks.
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
        skip = max(0, self._skip - block.row)
        rows = self._rows(block, skip)
        first = i - (row - block.row - skip)
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

    def _rows(self, block: _Block, skip: int) -> Sequence[T]:
        """Parse the rows of a block, except the first ``skip`` ones.

        A row that cannot be parsed raises its error when it is accessed.
        """
        rows = self._together(block.data, block.rows, skip)
        if rows is not None:
            return rows
        bounds = block.bounds(self._parser)[:, skip:]
        runs = [bounds[:, k : k + _RUN_ROWS] for k in range(0, bounds.shape[1], _RUN_ROWS)]
        return _Parts([part for run in runs for part in self._run(block, run)])

    def _run(self, block: _Block, bounds: NDArray[np.int64]) -> list[Sequence[T]]:
        """Parse a few rows of a block: together, or else each alone."""
        rows = self._together(block.data[bounds[0, 0] : bounds[1, -1]], bounds.shape[1])
        if rows is not None:
            return [rows]
        parts: list[Sequence[T]] = []
        for start, end in bounds.T.tolist():
            rows = self._together(block.data[start:end], 1)
            failing = _Failing(partial(self._alone, block, start, end))
            parts.append(failing if rows is None else rows)
        return parts

    def _together(self, data: bytes, count: int, skip: int = 0) -> Sequence[T] | None:
        """Parse ``count`` rows, except the first ``skip`` ones; None if one of them fails."""
        try:
            rows = self._parser.parse(data, skip)
        except (FlowError, ValueError):
            return None
        return rows if len(rows) == count - skip else None

    def _alone(self, block: _Block, start: int, end: int) -> Sequence[T]:
        """Parse one row of a block; its error names its place."""
        try:
            rows = self._parser.parse(block.data[start:end])
        except SpecMismatch as error:
            raise SpecMismatch(f"{block.place(start, end)}: {error}") from error
        except UnicodeDecodeError as error:
            place = block.place(start, end)
            raise SourceError(
                f"{place}: byte {place.byte + error.start} is not {error.encoding}: "
                f"{error.reason}; pass encoding= if the file has another one"
            ) from error
        except (FlowError, ValueError) as error:
            raise SourceError(f"{block.place(start, end)}: {error}") from error
        if len(rows) != 1:
            raise SourceError(
                f"{block.place(start, end)}: expected one row here, and the parser found "
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
            _unchanged(name, file)
    load = _Blocks(files, skip, parser, name, kept).with_row
    latest: tuple[int, Sequence[T]] = (0, ())

    def read(i: int) -> T:
        nonlocal latest
        first, rows = latest  # one read of both: another thread may replace ``latest``
        k = i - first
        if k >= 0:
            try:
                return rows[k]
            except IndexError:
                pass
        first, rows = latest = load(i)
        return rows[i - first]

    return read


def _unchanged(name: str, known: TextFile) -> ByteFile:
    file = open_file(name, known.path)
    if file.stamp != known.stamp and digest_of(name, file) != known.digest:
        raise file_has_changed(known.path)
    guard_file(file, partial(_is_same, name, known.digest))
    return file


def _is_same(name: str, digest: int, file: LocalFile, size: int) -> bool:
    return size == file.size and digest_of(name, file) == digest


# -- the node of a format --------------------------------------------------------------------------


@attrs.frozen(repr=False)
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

"""Random access to the rows of text files, by blocks.

Rows that are read in order are parsed by whole blocks, which is fastest. Doing that in random order
would parse hundreds of rows for each one, so there a row is found in the bytes of its block, and
parsed alone. If a block has a row that cannot be parsed, its rows are parsed in short groups, and
the rows of a failing group singly: each row is parsed a few times, however many are bad.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, Protocol, TypeVar

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.errors import FlowError, Location, SourceError, SpecMismatch
from flowdsl.nodes import IndexedSource, T, cached_per_node, frozen_node
from flowdsl.resources.file_names import without_secrets
from flowdsl.storage.byte_files import ByteFile, LocalFile, guard_file, open_file
from flowdsl.storage.compression import PIECE, Inflated
from flowdsl.storage.file_source import file_has_changed
from flowdsl.storage.index import Shards
from flowdsl.storage.paths import is_url, title_of
from flowdsl.storage.read_ahead import ReadAhead
from flowdsl.storage.text.indexing import TextFile, digest_of
from flowdsl.storage.text.syntax import Syntax, row_bounds

T_co = TypeVar("T_co", covariant=True)


class Rows(Protocol[T_co]):
    """Rows that a parser has found; getting one may do the rest of the work, or fail."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> T_co: ...


_MAX_BLOCKS = 8
"""The most blocks that a read in order parses together."""
_NEAR_ROWS = 16
"""Rows at most this far after the latest row are read in order: parsing a block takes about as long
as parsing this number of its rows alone."""
_GROUP_ROWS = 32
"""The number of rows that are parsed together if their block cannot be parsed as a whole."""
_UNPARSED_BYTES = 1 << 24
"""The bytes of blocks that a process caches while rows are read at random."""
_FILES_OPEN = 16
_INFLATED_OPEN = 256
"""The limit for compressed files: one that is opened again is decompressed from its beginning."""


class Parser(Protocol[T_co]):
    """Parses the bytes of rows into values."""

    @property
    def syntax(self) -> Syntax | None:
        """The syntax that determines where rows end; None if each line is a row."""
        ...

    @property
    def keeps_empty_lines(self) -> bool:
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
class _RowInFile:
    """The place of a row, for messages."""

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
        bounds = row_bounds(self.data, parser.syntax, parser.keeps_empty_lines)
        if bounds.shape[1] != self.rows:
            raise file_has_changed(self.path)
        return bounds

    def location(self, start: int, end: int) -> _RowInFile:
        """Return the location of the row at these bytes of ``data``."""
        line = self._line + self.data.count(b"\n", 0, start) + 1
        more = self.data[start:end].rstrip(b"\n").count(b"\n")
        return _RowInFile(self.path, line, line + more, self._byte + start)


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
        """The number of blocks that the next read in order parses; it doubles, up to the limit."""

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


def _line(file: TextFile, row: int, parser: Parser[Any]) -> int | None:
    """Return the number of the line on which a row begins, for messages; None if it is unknown."""
    number = int(file.blocks[1].searchsorted(row, "right")) - 1
    bounds: list[list[int]] = file.blocks[:3, number : number + 2].tolist()
    _, (first, end), (line, end_line) = bounds
    is_last = number == file.blocks.shape[1] - 2  # its last line may have no newline
    if end_line - line == end - first and not is_last:  # each row is a line
        return line + row - first + 1
    if file.compression is not None or is_url(file.path):
        return None  # reading the block would take long, and an error occurs for each bad row
    try:
        lines = _lines(file, number, parser.syntax, parser.keeps_empty_lines)
    except (FlowError, OSError):
        return None
    # Otherwise the file has changed, or lines are not rows, as comments of SVMlight.
    return lines[row - first] if len(lines) == end - first else None


@lru_cache(128)
def _lines(
    file: TextFile, number: int, syntax: Syntax | None, keeps_empty_lines: bool
) -> list[int]:
    """Return the lines on which the rows of a block begin."""
    (start, end), _, (line, _) = file.blocks[:3, number : number + 2].tolist()
    data = open_file("location", file.path).read(start, end)
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    starts = row_bounds(data, syntax, keeps_empty_lines)[0]
    lines: list[int] = (newlines.searchsorted(starts) + (line + 1)).tolist()
    return lines


# -- the node of a format --------------------------------------------------------------------------


@frozen_node
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
        return self._shards.length

    @property
    @cached_per_node
    def _shards(self) -> Shards:
        return Shards([file.rows - self.skip for file in self.files])

    def location(self, row: int) -> Location | None:
        k, number = self._shards.find(row)
        file = self.files[k]
        return Location(without_secrets(file.path), _line(file, number + self.skip, self.parser))

    def open(self) -> Callable[[int], T]:
        return reader(self.files, self.skip, self.parser, self.operator, self.kept)

"""The index of a text file: where its rows begin.

An index of every row would be larger than a file of short lines. Instead, rows are grouped into
blocks: a block contains the rows that begin in one stretch of 8 KB. The index then takes about
0.3% of the file and is sent with the flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.errors import SourceError
from flowdsl.storage.byte_files import ByteFile
from flowdsl.storage.index import Table, table_of
from flowdsl.storage.text.opening import TextCompression, open_text
from flowdsl.storage.text.syntax import RowEnds, Syntax

STRETCH = 1 << 13
"""The size of the byte range in which the rows of one block begin."""

_INDEX_VERSION = 5
_READ_BYTES = 1 << 21
"""The size of the pieces in which a file is scanned."""
_BOM = b"\xef\xbb\xbf"


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
    keeps_empty_lines: bool = True,
) -> TextFile:
    """Index a text file: a row is a line, or ends where its syntax says.

    With ``bom``, a UTF-8 byte order mark at the beginning is skipped. Without
    ``keeps_empty_lines``, empty lines are not rows.

    Raises:
        SourceError: The file is missing, damaged or not text, its last quote is never closed, or a
            quote that spans several lines is closed within a cell.
    """
    index_key = f"text {_INDEX_VERSION} {STRETCH} {syntax} {bom} {keeps_empty_lines}"
    return indexed(
        operator,
        path,
        compression,
        index_key,
        columns=3,
        scan=lambda file: scan(operator, file, syntax, bom, keeps_empty_lines),
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
    keeps_empty_lines: bool = True,
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
            if not keeps_empty_lines:
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
    is_row = rest > 1 or (rest and (keeps_empty_lines or previous_byte != ord("\r")))
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

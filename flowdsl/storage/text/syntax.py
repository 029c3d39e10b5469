"""The ends of rows of text: newlines outside of quoted cells, comments and escapes.

The bytes of a file are searched without decoding them, which is fast. ``checked_encoding`` admits
only encodings in which the bytes of these characters occur in no other character.
"""

from __future__ import annotations

import re
from functools import cache

import attrs
import numpy as np
from numpy.typing import NDArray

_NEWLINE = ord("\n")
_PLAIN = 0
"""The byte that replaces each byte which looks like syntax but is not."""


@attrs.frozen
class Syntax:
    """The characters that determine where rows end.

    A newline in a quoted cell, or behind an escape character, does not end a row.
    """

    delimiter: str
    quote: str | None = None
    escape: str | None = None
    """The character that makes the next one ordinary, in and outside of quotes."""
    comment: str | None = None
    """The character that begins a line which is not a row."""
    skips_spaces: bool = False
    """True if spaces at the beginning of a cell are ignored."""

    @property
    def quotes(self) -> Quotes | None:
        return None if self.quote is None else Quotes(self.quote, self.delimiter)

    @property
    def has_only_quotes(self) -> bool:
        """True if rows can be found by their quotes alone."""
        return self.escape is None and self.comment is None and not self.skips_spaces


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
        # the offset of the latest closing quote: -1 if it is the byte before, -2 if there is none
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
        """Return True if a cell is open at the end of a line; ``was_open`` if at its beginning."""
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


@attrs.frozen
class Found:
    """The ends of rows, and other syntax, in a piece of a file."""

    ends: NDArray[np.intp]
    """The offsets of all newlines."""
    ends_row: NDArray[np.bool_]
    """For each newline, True if it ends a row or a comment."""
    quotes_within_cells: NDArray[np.intp]
    """The offsets of quotes that close a cell although more text follows in the cell."""
    comments: NDArray[np.intp]
    """The offsets at which comments begin."""


@attrs.define
class RowEnds:
    """Finds the ends of rows in the consecutive pieces of a file."""

    syntax: Syntax
    is_open: bool = False
    """True if a quoted cell is open at the end of the latest piece."""
    _before: int = _NEWLINE
    """The last byte of the latest piece; ``_PLAIN`` if it was escaped, in a comment, or a quote
    that did not close a cell."""
    _is_after_newline: bool = True
    _is_escaped: bool = False
    """True if the next byte is escaped."""
    _in_comment: bool = False

    def find(self, codes: NDArray[np.uint8], after: bytes) -> Found:
        """Find the ends of rows in a piece; ``after`` is the byte that follows, or empty."""
        ends = np.flatnonzero(codes == _NEWLINE)
        was_open = self.is_open
        comments: list[int] = []
        if self.syntax.has_only_quotes:
            marks = self._marks(codes)
        else:
            codes = codes.copy()
            marks = self._marks_by_line(codes, ends, comments)
        outside = (np.searchsorted(marks, ends) + was_open) % 2 == 0
        quotes, within = self.syntax.quotes, np.zeros(0, np.intp)
        if quotes is not None:
            within = quotes.closed_within(codes, marks, after, was_open)
        return Found(ends, outside & (codes[ends] == _NEWLINE), within, np.array(comments, np.intp))

    def _marks_by_line(
        self, codes: NDArray[np.uint8], ends: NDArray[np.intp], comments: list[int]
    ) -> NDArray[np.intp]:
        """Return the quotes that open and close cells; bytes that are not syntax become ``_PLAIN``.

        Whether a line is a comment depends on the quotes before it, so the parts between lines
        that look like comments are searched one after another.
        """
        parts: list[NDArray[np.intp]] = []
        starts = self._like_comments(codes)
        self._is_after_newline = codes[-1:].tolist() == [_NEWLINE]
        at = self._after_comment(codes, ends, 0) if self._in_comment else 0
        for start in starts:
            parts.append(self._part(codes, at, start))
            at = start
            if not self.is_open and self._before == _NEWLINE:
                comments.append(start)
                at = self._after_comment(codes, ends, start)
        parts.append(self._part(codes, at, len(codes)))
        return np.concatenate(parts)

    def _like_comments(self, codes: NDArray[np.uint8]) -> list[int]:
        """Return the offsets of lines that begin like a comment."""
        if self.syntax.comment is None:
            return []
        offsets = np.flatnonzero(codes == ord(self.syntax.comment))
        is_first = codes[offsets - 1] == _NEWLINE
        if len(offsets) and offsets[0] == 0:
            is_first[0] = self._is_after_newline
        first: list[int] = offsets[is_first].tolist()
        return first

    def _after_comment(self, codes: NDArray[np.uint8], ends: NDArray[np.intp], start: int) -> int:
        """Make a comment ``_PLAIN``, and return the offset of its newline."""
        k = int(ends.searchsorted(start))
        self._in_comment = k == len(ends)
        end = len(codes) if self._in_comment else int(ends[k])
        if end > start:
            codes[start:end] = self._before = _PLAIN
        return end

    def _part(self, codes: NDArray[np.uint8], start: int, end: int) -> NDArray[np.intp]:
        """Return the quotes of a part without comments."""
        part = codes[start:end]
        if self.syntax.escape is not None and len(part):
            self._replace_escaped(part, ord(self.syntax.escape))
        if self.syntax.skips_spaces:
            self._replace_spaces(part)
        return self._marks(part) + start

    def _replace_escaped(self, part: NDArray[np.uint8], escape: int) -> None:
        if self._is_escaped:
            part[0] = _PLAIN
        at = np.flatnonzero(part == escape)
        begins = np.diff(at, prepend=-2) > 1
        in_run = at - at[np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0))]
        escaped = at[in_run % 2 == 0] + 1
        self._is_escaped = len(escaped) > 0 and int(escaped[-1]) == len(part)
        part[escaped[: len(escaped) - self._is_escaped]] = _PLAIN

    def _replace_spaces(self, part: NDArray[np.uint8]) -> None:
        """Replace spaces at the beginning of a cell by delimiters: a quote after them opens it."""
        spaces = np.flatnonzero(part == ord(" "))
        begins = np.diff(spaces, prepend=-2) > 1
        firsts = spaces[begins]
        before = part[firsts - 1]
        if len(firsts) and firsts[0] == 0:
            before[0] = self._before
        delimiter = ord(self.syntax.delimiter)
        at_begin = (before == delimiter) | (before == _NEWLINE)
        part[spaces[at_begin[np.cumsum(begins) - 1]]] = delimiter

    def _marks(self, codes: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return the offsets of quotes that open and close cells, and update the state."""
        quotes = self.syntax.quotes
        if not len(codes):
            return np.zeros(0, np.intp)
        last = int(codes[-1])
        if quotes is None:
            self._before = last
            return np.zeros(0, np.intp)
        marks = quotes.marks(codes, self._before, self.is_open)
        self.is_open = (self.is_open + len(marks)) % 2 == 1
        closes = len(marks) > 0 and int(marks[-1]) == len(codes) - 1 and not self.is_open
        self._before = last if closes or last != ord(quotes.mark) else _PLAIN
        return marks


_NONE = np.zeros(0, np.int64)
_ZERO = np.zeros(1, np.int64)


def row_bounds(data: bytes, syntax: Syntax | None, keeps_empty_lines: bool) -> NDArray[np.int64]:
    """Return the first byte and the end of each row, newline included; shape (2, rows).

    ``data`` begins with a row. Without ``keeps_empty_lines``, empty lines are not rows.
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
    if keeps_empty_lines or not (data[:1] in (b"\n", b"\r") or b"\n\n" in data or b"\n\r" in data):
        return bounds
    begins, sizes = codes[bounds[0]], np.diff(bounds, axis=0)[0]
    has_one_byte = (sizes == 1) | ((sizes == 2) & (codes[bounds[1] - 1] == ord("\n")))
    is_empty = (begins == ord("\n")) | ((begins == ord("\r")) & has_one_byte)
    return bounds[:, ~is_empty]

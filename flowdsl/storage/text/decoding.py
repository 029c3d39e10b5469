"""Decode blocks of text files into rows, in the encodings that can be split before decoding."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import cache

from flowdsl.errors import InvalidFlow
from flowdsl.storage.text.syntax import Syntax, row_bounds


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
    bounds = row_bounds(data, syntax, keeps_empty_lines=False)
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

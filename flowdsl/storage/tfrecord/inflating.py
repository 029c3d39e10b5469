"""Decompression of a stream, with bounded memory."""

from __future__ import annotations

import zlib
from typing import Literal, TypeAlias

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.storage.byte_files import ByteFile

Compression: TypeAlias = Literal["gzip", "zlib"]

WINDOW: dict[Compression, int] = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
"""The ``wbits`` argument of zlib for each compression."""

_INPUT = 1 << 18
_OUTPUT = 1 << 20
"""Limits on the bytes that are read and decompressed at once."""


class Inflated:
    """The content of a gzip or zlib file; a gzip file may have several members."""

    def __init__(self, reader: str, file: ByteFile, compression: Compression) -> None:
        self._reader, self._file, self._compression = reader, file, compression
        self._at = 0
        self._input = b""
        self._inflate = zlib.decompressobj(WINDOW[compression])
        self._content = b""
        self._used = 0
        self._started = False

    def read(self, count: int) -> bytes:
        """Return the next bytes; fewer only at the end.

        Raises:
            SourceError: The file is damaged, truncated, or compressed in another way.
        """
        have = len(self._content) - self._used
        if have < count:
            parts = [self._content[self._used :]]
            while have < count and (part := self._more()):
                parts.append(part)
                have += len(part)
            self._content, self._used = b"".join(parts), 0
        data = self._content[self._used : self._used + count]
        self._used += len(data)
        return data

    def _more(self) -> bytes:
        """Return some more content; empty at its end."""
        while True:
            if not self._input:
                self._input = self._file.read(self._at, _INPUT)
                self._at += len(self._input)
            if not self._input and self._inflate.eof:
                return b""
            if not self._input:
                raise self._damaged("it is cut short")
            if self._inflate.eof and self._compression == "zlib":
                raise self._damaged("something follows its end")
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(WINDOW["gzip"])
            try:
                data = self._inflate.decompress(self._input, _OUTPUT)
            except zlib.error as error:
                raise self._damaged(str(error)) from error
            inflate = self._inflate
            self._input = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if data:
                self._started = True
                return data

    def _damaged(self, why: str) -> SourceError:
        what = f"{self._reader}: {self._file.path!r}"
        if self._started:
            return SourceError(f"{what} is damaged, near byte {self._at}: {why}")
        return SourceError(
            f"{what} cannot be read as {self._compression}: {why}; if that is wrong, "
            f"pass another compression, or none"
        )


def check_compression(operator: str, compression: object) -> None:
    """Raise InvalidFlow for an unknown compression."""
    if compression not in (None, *WINDOW):
        raise InvalidFlow(
            f"{operator}: compression must be None, 'gzip' or 'zlib', got {compression!r}"
        )

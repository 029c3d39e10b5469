"""The content of a compressed file, in order: no more memory than what is asked for."""

from __future__ import annotations

import zlib
from typing import Literal, TypeAlias

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.storage.byte_files import ByteFile

Compression: TypeAlias = Literal["gzip", "zlib"]

WINDOW: dict[Compression, int] = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
"""What zlib calls each, as the size of the window."""

_INPUT = 1 << 18
_OUTPUT = 1 << 20
"""How many bytes are read, and made of them, at once."""


class Inflated:
    """The content of a gzip or zlib file; parts of a gzip file follow each other."""

    def __init__(self, reader: str, file: ByteFile, compression: Compression) -> None:
        self._reader, self._file, self._compression = reader, file, compression
        self._at = 0
        self._given = b""
        self._inflate = zlib.decompressobj(WINDOW[compression])
        self._content = b""
        self._used = 0
        self._begun = False

    def read(self, count: int) -> bytes:
        """The next bytes; fewer only at the end.

        Raises:
            SourceError: The file is damaged, cut short, or compressed in no such way.
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
        """Some more of the content; empty at its end."""
        while True:
            if not self._given:
                self._given = self._file.read(self._at, _INPUT)
                self._at += len(self._given)
            if not self._given and self._inflate.eof:
                return b""
            if not self._given:
                raise self._damaged("it is cut short")
            if self._inflate.eof and self._compression == "zlib":
                raise self._damaged("something follows its end")
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(WINDOW["gzip"])
            try:
                data = self._inflate.decompress(self._given, _OUTPUT)
            except zlib.error as error:
                raise self._damaged(str(error)) from error
            inflate = self._inflate
            self._given = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if data:
                self._begun = True
                return data

    def _damaged(self, why: str) -> SourceError:
        what = f"{self._reader}: {self._file.path!r}"
        if self._begun:
            return SourceError(f"{what} is damaged, near byte {self._at}: {why}")
        return SourceError(
            f"{what} cannot be read as {self._compression}: {why}; if it is not compressed so, "
            f"pass another compression, or none"
        )


def check_compression(operator: str, compression: object) -> None:
    """Refuse what is no compression, by an InvalidFlow."""
    if compression not in (None, *WINDOW):
        raise InvalidFlow(
            f"{operator}: compression must be None, 'gzip' or 'zlib', got {compression!r}"
        )

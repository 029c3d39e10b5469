"""Random access to the bytes of a file, on this machine or elsewhere."""

from __future__ import annotations

import os
import stat
import weakref
from time import monotonic
from typing import Protocol

from flowdsl.errors import SourceError
from flowdsl.resources.systems import BINARY, read_at
from flowdsl.storage.paths import is_url

_BETWEEN_LOOKS = 0.01
"""Seconds between two checks of a file; a check takes a microsecond."""


class ByteFile(Protocol):
    """A file open for reading; thread-safe, and closed when it is garbage-collected."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """The length in bytes when the file was opened."""
        ...

    @property
    def stamp(self) -> str:
        """A mark that changes when the file is rewritten; an index is valid for one stamp."""
        ...

    def read(self, start: int, count: int) -> bytes:
        """Return ``count`` bytes at offset ``start``; fewer only at the end of the file.

        Raises:
            SourceError: The bytes cannot be read; the message names the file.
        """
        ...

    def changed(self) -> bool:
        """Return True if the file was modified after it was opened, by its time or size.

        Bytes that were read before then belong to another version than the bytes read next. Some
        remote file systems never detect a change here. For web servers, ``read`` raises an error
        instead.
        """
        ...


class LocalFile:
    """A file on this machine's disk."""

    def __init__(self, reader: str, path: str) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDONLY | BINARY)
            weakref.finalize(self, os.close, self._file)
            status = os.fstat(self._file)
        except OSError as error:
            raise SourceError(f"{reader}: {path!r} cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            what = "is a folder, not a file" if stat.S_ISDIR(status.st_mode) else "is not a file"
            raise SourceError(f"{reader}: {path!r} {what}")
        self.size = status.st_size
        self.stamp = _stamp(status)
        self._look_at = 0.0

    def read(self, start: int, count: int) -> bytes:
        try:
            data = read_at(self._file, count, start)
            if len(data) == count:
                return data
            parts = [data]
            while data and (left := count - sum(map(len, parts))):  # Linux reads at most 2 GiB
                parts.append(data := read_at(self._file, left, start + count - left))
        except OSError as error:
            raise SourceError(
                f"{self.path!r} cannot be read at byte {start}: {error.strerror}"
            ) from error
        return b"".join(parts)

    def changed(self) -> bool:
        if (now := monotonic()) < self._look_at:
            return False
        if _stamp(os.fstat(self._file)) != self.stamp:
            return True
        self._look_at = now + _BETWEEN_LOOKS
        return False


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def open_file(reader: str, path: str) -> ByteFile:
    """Open a path or URL for reading.

    Raises:
        SourceError: The file is missing, or is not a file; the message begins with ``reader``.
    """
    if is_url(path):
        from flowdsl.storage.urls import RemoteFile  # needs fsspec, which local files do not

        return RemoteFile(reader, path)
    return LocalFile(reader, path)

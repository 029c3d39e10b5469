"""The bytes of a file at an offset, wherever it lies."""

from __future__ import annotations

import os
import stat
import weakref
from time import monotonic
from typing import Protocol

from flowdsl.errors import SourceError
from flowdsl.storage.paths import is_url

_BETWEEN_LOOKS = 0.01
"""Seconds; a look at the state of a file takes a microsecond."""


class ByteFile(Protocol):
    """A file open for reading; any thread may read it, and it closes when it is forgotten."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Its length in bytes when it was opened."""
        ...

    @property
    def stamp(self) -> str:
        """What changes if the file is written again: an index is good for one stamp."""
        ...

    def read(self, start: int, count: int) -> bytes:
        """The ``count`` bytes from ``start`` on; fewer only at the end of the file.

        Raises:
            SourceError: They cannot be read; the message names the file.
        """
        ...

    def changed(self) -> bool:
        """Whether it may have been written to since it was opened, as its time or size tells.

        What was read before is then of another state than what is read next. Some files elsewhere
        never tell, and web servers by themselves: ``read`` fails.
        """
        ...


class LocalFile:
    """The bytes of a file on this machine's disk."""

    def __init__(self, reader: str, path: str) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._file)
            status = os.fstat(self._file)
        except OSError as error:
            raise SourceError(f"{reader}: {path!r} cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            what = "is a folder, and no file" if stat.S_ISDIR(status.st_mode) else "is no file"
            raise SourceError(f"{reader}: {path!r} {what}")
        self.size = status.st_size
        self.stamp = _stamp(status)
        self._look_at = 0.0

    def read(self, start: int, count: int) -> bytes:
        try:
            data = os.pread(self._file, count, start)
            if len(data) == count:
                return data
            parts = [data]
            while data and (left := count - sum(map(len, parts))):  # Linux gives 2 GiB at most
                parts.append(data := os.pread(self._file, left, start + count - left))
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
        SourceError: It is missing, or no file; the message begins with what ``reader`` says.
    """
    if is_url(path):
        from flowdsl.storage.urls import RemoteFile  # with fsspec, which most do without

        return RemoteFile(reader, path)
    return LocalFile(reader, path)

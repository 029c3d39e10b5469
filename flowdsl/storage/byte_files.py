"""Random access to the bytes of a file, on this machine or elsewhere.

The problem: a file may be overwritten while it is read, and the rows read next would belong to
another version. The time and size of a file are cheap to compare, but a copied or touched file has
another time and the same content; a digest of the content is reliable, and reads the file.

The choice: every read of a local file is followed by a comparison of its *stamp*: its size, times
and inode. Where the stamp differs, a *guard*, which belongs to the format, decides by the content.
A read returns bytes of the version that was opened, or raises an error.
"""

from __future__ import annotations

import os
import stat
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol, TypeAlias

from flowdsl.errors import SourceError
from flowdsl.resources.systems import BINARY, read_at
from flowdsl.storage.paths import is_url


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
            SourceError: The bytes cannot be read, or the file was modified since it was opened;
                the message names the file. Some remote file systems do not detect that.
        """
        ...

    def check(self) -> None:
        """Check that the file has the content of the version that was opened.

        For bytes that a library reads itself; ``read`` checks by itself. Readers of remote files
        do nothing here.

        Raises:
            SourceError: It was modified.
        """
        ...


TICK = 2.0
"""The resolution of file timestamps in seconds; FAT has the coarsest."""

Guard: TypeAlias = "Callable[[LocalFile, int], bool]"
"""Returns True if a modified file still has the content that was opened.

Its arguments are the file and its present size. It refers to no file itself: the file refers to it.
"""


class LocalFile:
    """A file on this machine's disk.

    ``guard`` decides whether a modified file has the same content. Without one, every modification
    is an error.
    """

    guard: Guard | None = None

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
        self._version = _version_of(status)
        self._checking = threading.RLock()
        self._is_checking = False

    @property
    def stamp(self) -> str:
        return " ".join(map(str, self._version))

    def read(self, start: int, count: int) -> bytes:
        data = self._read(start, count)
        status = os.fstat(self._file)  # a modification changes one of these, and the size perhaps
        if status.st_ctime_ns == self._version[2] and status.st_mtime_ns == self._version[1]:
            return data
        self.check()
        return self._read(start, count)

    def is_fresh(self) -> bool:
        """Return True if the stamp is so recent that the next modification may not change it."""
        return time.time() - self._version[1] / 1e9 < TICK

    def check(self) -> None:
        with self._checking:
            status = os.fstat(self._file)
            version = _version_of(status)
            if version == self._version or self._is_checking:
                return
            before, self._version, self._is_checking = self._version, version, True
            try:
                same = self.guard is not None and self.guard(self, status.st_size)
            except SourceError:
                same = False
            finally:
                self._is_checking = False
            if not same:
                self._version = before
                raise SourceError(
                    f"{self.path!r} has changed since it was opened; build a new flow"
                )

    def _read(self, start: int, count: int) -> bytes:
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


def guard_file(file: ByteFile, guard: Guard) -> None:
    """Set the guard of a local file; the readers of remote files compare ETags and times."""
    if isinstance(file, LocalFile):
        file.guard = guard


def rows_are_verified(file: LocalFile, size: int) -> bool:
    """The guard of formats that check each row against a checksum that they keep in memory."""
    return True


def _version_of(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def open_file(reader: str, path: str) -> ByteFile:
    """Open a path or URL for reading.

    Raises:
        SourceError: The file is missing, or is not a file; the message begins with ``reader``.
    """
    if is_url(path):
        from flowdsl.storage.urls import RemoteFile  # needs fsspec, which local files do not

        return RemoteFile(reader, path)
    return LocalFile(reader, path)

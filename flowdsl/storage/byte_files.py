"""Random access to the bytes of a file, on this machine or elsewhere.

The problem: a file may be overwritten while it is read, and the rows read next would belong to
another version. The time and size of a file are cheap to compare, but a copied or touched file has
another time and the same content; a digest of the content is reliable, and reads the file.

The choice: every read of a local file is followed by a comparison of its *stamp*: its size, times
and inode. Where the stamp differs, a *guard*, which belongs to the format, decides by the content.
A read returns bytes of the version that was opened, or raises an error. The same comparison lets a
file be closed and opened again between two reads (``open_files.py``).
"""

from __future__ import annotations

import glob
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from flowdsl.errors import SourceError
from flowdsl.resources import systems
from flowdsl.resources.systems import read_at
from flowdsl.storage.open_files import Descriptor, NotAFile, Reopened
from flowdsl.storage.paths import is_url

if TYPE_CHECKING:
    from typing_extensions import Buffer


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

Its arguments are the file and its present size. It must not refer to the file, which refers to it:
the cycle would keep the file open.
"""


class LocalFile:
    """A file on this machine's disk.

    ``guard`` decides whether a modified file has the same content. Without one, every modification
    is an error.
    """

    guard: Guard | None = None

    def __init__(self, reader: str, path: str) -> None:
        self.path = path
        self._opened = Reopened(partial(Descriptor, path))
        try:
            status = self._opened.get().status
        except NotAFile as error:
            raise SourceError(f"{reader}: {path!r} {error.strerror}") from error
        except OSError as error:
            reason = error.strerror
            if isinstance(error, FileNotFoundError) and glob.has_magic(os.path.basename(path)):
                reason = f"{reason}; {reader} reads one file and expands no pattern"
            raise SourceError(f"{reader}: {path!r} cannot be opened: {reason}") from error
        self.size = status.st_size
        if not self.size and read_at(self._opened.get().number, 1, 0):
            raise SourceError(
                f"{reader}: {path!r} reports a size of 0 but contains bytes, as files in /proc do; "
                f"copy it to a regular file"
            )
        self._version = _version_of(status)
        self._checking = threading.RLock()
        self._is_checking = False

    @property
    def stamp(self) -> str:
        return " ".join(map(str, self._version))

    def read(self, start: int, count: int) -> bytes:
        opened = self._opened
        opened.used = True
        file = opened.handle or self._open_again()
        data = self._read(file, start, count)
        if self._is_unchanged(file):
            return data
        self.check()
        return self._read(opened.handle or self._open_again(), start, count)

    def read_into(self, buffers: Sequence[Buffer], start: int, count: int) -> bool:
        """Fill buffers, of ``count`` bytes together, from offset ``start``; return True if full.

        If it returns False, call ``read``: it returns the bytes, or says what is wrong.
        """
        opened = self._opened
        opened.used = True
        file = opened.handle
        if systems.read_into is None or file is None:
            return False
        try:
            filled = systems.read_into(file.number, buffers, start)
        except OSError:
            return False
        return filled == count and self._is_unchanged(file)

    def _is_unchanged(self, file: Descriptor) -> bool:
        """Return True if the file has the stamp of the version that was opened."""
        status = os.fstat(file.number)
        _, modified, changed, inode = self._version
        return (
            status.st_ctime_ns == changed
            and status.st_mtime_ns == modified
            and status.st_ino == inode  # another one if it was opened again after it was replaced
        )

    def is_fresh(self) -> bool:
        """Return True if the stamp is so recent that the next modification may not change it."""
        return time.time() - self._version[1] / 1e9 < TICK

    def check(self) -> None:
        with self._checking:
            file = self._opened.handle or self._open_again()
            status = os.fstat(file.number)
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

    def _open_again(self) -> Descriptor:
        try:
            return self._opened.get()
        except OSError as error:
            raise SourceError(
                f"{self.path!r} cannot be opened again, after it was closed in favour of other "
                f"files: {error.strerror}"
            ) from error

    def _read(self, file: Descriptor, start: int, count: int) -> bytes:
        try:
            data = read_at(file.number, count, start)
            if len(data) == count:
                return data
            parts = [data]
            while data and (left := count - sum(map(len, parts))):  # Linux reads at most 2 GiB
                parts.append(data := read_at(file.number, left, start + count - left))
        except OSError as error:
            raise SourceError(
                f"{self.path!r} cannot be read at byte {start}: {error.strerror}"
            ) from error
        return b"".join(parts)


def read_into(file: ByteFile, buffers: Sequence[Buffer], start: int, count: int) -> bool:
    """Fill buffers as ``read_into`` of a local file does; return False for a remote one."""
    return isinstance(file, LocalFile) and file.read_into(buffers, start, count)


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
        from flowdsl.storage.urls import remote_file  # needs fsspec, which local files do not

        return remote_file(reader, path)
    return LocalFile(reader, path)

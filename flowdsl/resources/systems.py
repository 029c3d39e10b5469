"""Functions that some operating systems lack, with their replacements there."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Self

BINARY: int = getattr(os, "O_BINARY", 0)
"""A flag of ``os.open``: without it, Windows translates the ends of lines."""

NO_WAITING: int = getattr(os, "O_NONBLOCK", 0)
"""A flag of ``os.open``: without it, opening a pipe waits for a writer. Windows has no such files.
"""

_FEW_FILES = 512
"""The number of files that Windows opens for a program by default."""


def most_open_files() -> int:
    """Return the number of files that this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return _FEW_FILES
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MANY_FILES if soft == resource.RLIM_INFINITY else min(soft, _MANY_FILES)


_MANY_FILES = 1 << 14
"""More than this are not used, even if the system has no limit."""

_one_at_a_time = Lock()


class PrivateMemory(mmap.mmap):
    """New memory that a fork of this process does not share."""

    def __new__(cls, nbytes: int) -> Self:
        """Allocate memory of zeros."""
        if hasattr(mmap, "MAP_PRIVATE"):
            return super().__new__(cls, -1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return super().__new__(cls, -1, nbytes)  # Windows has no forks


def _read_at(file: int, count: int, start: int) -> bytes:
    with _one_at_a_time:
        os.lseek(file, start, os.SEEK_SET)
        return os.read(file, count)


read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_at)
"""Read bytes at an offset, from any thread."""

read_into: Callable[[int, Sequence[object], int], int] | None = getattr(os, "preadv", None)
"""Read bytes at an offset into buffers, and return their number; None where systems cannot."""

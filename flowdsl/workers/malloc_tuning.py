"""Malloc tuning: a worker keeps freed memory for the next element, up to a limit.

The problem: by default glibc maps new memory for each large array and unmaps it when the array is
freed, so every page of every array of every element costs a page fault. A function that creates one
array of 150 KB spent nine tenths of its time in page faults. The choice: raise glibc's thresholds,
so that freed memory stays in the heap, and return it to the system if it exceeds a limit. See
``mallopt(3)``, ``mallinfo(3)``, ``malloc_trim(3)``.
"""

from __future__ import annotations

import ctypes
import os

MOST = 64 << 20
"""The maximum bytes of freed memory that a worker keeps."""

_LARGEST_MAPPED = 32 << 20  # glibc refuses a larger threshold
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


class _Info(ctypes.Structure):
    """``struct mallinfo2``."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "used", "free", "keepcost")),
    ]


class Heap:
    """The heap of this process."""

    def __init__(self, most: int | None) -> None:
        """Keep up to ``most`` bytes of freed memory; None leaves the heap unchanged.

        This affects only this process, not programs that it starts. It has no effect without glibc
        or if environment variables configure the allocator.
        """
        self._most = most or 0
        self._libc = None if most is None else _glibc()
        if self._libc is not None:
            self._libc.mallopt(_M_TRIM_THRESHOLD, self._most)
            self._libc.mallopt(_M_MMAP_THRESHOLD, min(self._most, _LARGEST_MAPPED))

    def trim_excess(self) -> None:
        """Return free memory to the system if it exceeds the limit; a check takes 1 microsecond."""
        if self._libc is not None and self._libc.mallinfo2().free > self._most:
            self._libc.malloc_trim(0)

    def trim(self) -> None:
        """Return all free memory to the system."""
        if self._libc is not None:
            self._libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if "MALLOC_" in " ".join(os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        if not os.confstr("CS_GNU_LIBC_VERSION"):
            return None
    except (ValueError, OSError):  # another C library
        return None
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):  # before glibc 2.33
        return None
    libc.mallinfo2.restype = _Info
    return libc


UNTOUCHED = Heap(None)
"""A heap with the default settings."""

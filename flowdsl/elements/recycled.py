"""Memory for large arrays, which is reused when the array in it was collected.

New memory costs a page fault for each 4 KiB, which the system has to clear: a sixth of the time in
which rows are read and stacked. The C library returns large blocks to the system when they are
freed, and so pays that price for every batch.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from contextlib import suppress
from math import prod
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.resources.systems import PrivateMemory

_LEAST_BYTES = 1 << 20
"""Smaller arrays are allocated as usual: the C library keeps their memory."""

_MOST_BYTES = 1 << 27
"""The limit in bytes of the memory that is kept, also after a run. Memory for an array of more than
half of it is not kept."""

_HUGE_BYTES = 1 << 22
"""Memory of this size or more is requested in huge pages, where the system has them."""


@attrs.define(eq=False)
class RecycledMemory:
    """Allocates arrays, in memory of collected arrays if it has some of that size."""

    _free: deque[PrivateMemory] = attrs.field(factory=deque[PrivateMemory], init=False)
    """The memory of collected arrays. Arrays are collected in any thread, so it is changed only by
    atomic operations."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a new uninitialized array."""
        nbytes = prod(shape) * dtype.itemsize
        if not _LEAST_BYTES <= nbytes <= _MOST_BYTES // 2 or dtype.hasobject:
            return np.empty(shape, dtype)
        block = self._take(nbytes) or _new(nbytes)
        # Views of the array refer to it and not to the block, which is not an array.
        array: NDArray[Any] = np.ndarray(shape, dtype, block)
        weakref.finalize(array, self._keep, block).atexit = False
        return array

    def _take(self, nbytes: int) -> PrivateMemory | None:
        """Return a free block of this size, if there is one; a batch may have several sizes."""
        for _ in range(len(self._free)):
            with suppress(IndexError):  # another thread may have taken the last block
                block = self._free.popleft()
                if len(block) == nbytes:
                    return block
                self._free.append(block)
        return None

    def _keep(self, block: PrivateMemory) -> None:
        self._free.append(block)
        while sum(map(len, list(self._free))) > _MOST_BYTES:
            with suppress(IndexError):
                self._free.popleft()


def _new(nbytes: int) -> PrivateMemory:
    block = PrivateMemory(nbytes)
    if nbytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system has no huge pages
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


def has_memory_of_its_own(array: NDArray[Any]) -> bool:
    """Return True if the array keeps only its own memory alive, and is not a view of more.

    >>> array = RECYCLED.allocate((1 << 20,), np.dtype(np.uint8))
    >>> has_memory_of_its_own(array), has_memory_of_its_own(array[:9])
    (True, False)
    """
    base: object = array.base
    if type(array) is np.ndarray and isinstance(base, PrivateMemory):
        return len(base) == array.nbytes
    return array.flags.owndata


RECYCLED = RecycledMemory()
"""The memory that all runs of this process share, as many runs are short."""

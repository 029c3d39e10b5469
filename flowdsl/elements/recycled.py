"""Memory for large arrays that is used again when nobody refers to the last array in it.

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

from flowdsl.resources.systems import private_memory

_LEAST_BYTES = 1 << 20
"""Smaller arrays are allocated as usual: the C library keeps their memory."""


_MOST_FREE = 2
"""A consumer refers to one batch while the next one is made; the last of a pass may be smaller."""

_MOST_BYTES = 1 << 26
"""The memory of a larger array is not kept: it would stay after a run."""

_HUGE_BYTES = 1 << 22
"""From this size on, memory is requested in huge pages, where the system has them."""


@attrs.define(eq=False)
class RecycledMemory:
    """Allocates arrays, and keeps the memory of the last ones that were collected for the next."""

    _free: deque[mmap.mmap] = attrs.field(factory=lambda: deque(maxlen=_MOST_FREE), init=False)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a new uninitialized array."""
        nbytes = prod(shape) * dtype.itemsize
        if not _LEAST_BYTES <= nbytes <= _MOST_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        block = self._block(nbytes)
        # Views of the array refer to it and not to the block, which is not an array.
        array: NDArray[Any] = np.ndarray(shape, dtype, block)
        weakref.finalize(array, self._free.append, block).atexit = False
        return array

    def _block(self, nbytes: int) -> mmap.mmap:
        while self._free:
            with suppress(IndexError):  # another thread may have dropped it
                block = self._free.popleft()
                if len(block) == nbytes:
                    return block
        block = private_memory(nbytes)
        if nbytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # of a system without them
                block.madvise(mmap.MADV_HUGEPAGE)
        return block


RECYCLED = RecycledMemory()
"""The memory that all runs of this process share, which may be short."""

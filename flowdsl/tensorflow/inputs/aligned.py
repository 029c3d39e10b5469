"""Copies of large arrays in aligned memory, which TensorFlow reads in place.

TensorFlow copies an array that is not aligned, while it holds the interpreter and into memory that
the system has to clear first. A copy made here does neither: its memory is used again as soon as
TensorFlow has let go of the last array in it.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.workers.slabs import ALIGNMENT

_LARGE = 1 << 20
"""Bytes from which on a copy here is faster than TensorFlow's."""

_MOST_FREE = 4
"""Pieces of memory that are kept for later."""


class AlignedCopies:
    """Makes arrays ready for TensorFlow; not for several threads at once."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array as it is, where it is small or TensorFlow reads it in place; else a copy."""
        if array.nbytes < _LARGE or array.dtype.hasobject or _is_in_place(array):
            return array
        memory = self._memory(array.nbytes + ALIGNMENT)
        start = -memory.__array_interface__["data"][0] % ALIGNMENT
        copy = np.ndarray(array.shape, array.dtype, memory, start)
        np.copyto(copy, array)
        weakref.finalize(copy, self._give_back, memory).atexit = False
        return copy

    def _memory(self, nbytes: int) -> NDArray[np.uint8]:
        for k, memory in enumerate(self._free):
            if nbytes <= memory.nbytes <= 2 * nbytes:
                return self._free.pop(k)
        return np.empty(nbytes, np.uint8)

    def _give_back(self, memory: NDArray[np.uint8]) -> None:
        """Called in any thread: in that which drops the last reference to a copy."""
        self._free.append(memory)
        del self._free[:-_MOST_FREE]


def _is_in_place(array: NDArray[Any]) -> bool:
    address: int = array.__array_interface__["data"][0]
    return address % ALIGNMENT == 0 and array.flags.c_contiguous

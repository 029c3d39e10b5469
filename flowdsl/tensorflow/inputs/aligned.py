"""Copies of large arrays in aligned memory, which TensorFlow reads in place.

TensorFlow copies an array that is not aligned. That copy holds the interpreter lock and goes into
new memory, which the operating system has to clear first. A copy made here avoids both: its memory
is reused as soon as TensorFlow has released the last array in it.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.workers.slabs import ALIGNMENT

_LARGE = 1 << 20
"""The size in bytes from which a copy made here is faster than TensorFlow's copy."""

_MAX_FREE = 4
"""The limit on blocks of memory that are kept for reuse."""


class AlignedCopies:
    """Copies arrays into aligned, reused memory; not thread-safe."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself if it is small or aligned; otherwise an aligned copy."""
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
        """Keep memory for reuse; called in the thread that drops the last reference to a copy."""
        self._free.append(memory)
        del self._free[:-_MAX_FREE]


def _is_in_place(array: NDArray[Any]) -> bool:
    address: int = array.__array_interface__["data"][0]
    return address % ALIGNMENT == 0 and array.flags.c_contiguous

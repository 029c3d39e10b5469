"""Reusable memory for temporary arrays, such as an image that is about to be shrunk.

For an array of some hundred KB, the allocator asks the operating system for new memory, which
clears every page: that takes as long as decoding the image.
"""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

_MAX_KEPT = 2**23
"""The limit, in bytes, of the memory that each thread keeps; larger arrays are not kept."""


class Scratch(threading.local):
    """One reusable array per thread: the next use overwrites its contents."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def array(self, *shape: int) -> NDArray[np.uint8]:
        """Return an uninitialised array of this shape, valid until this thread's next call."""
        size = math.prod(shape)
        kept = self._kept
        if kept.size < size:
            kept = np.empty(size, np.uint8)
            if size <= _MAX_KEPT:
                self._kept = kept
        return kept[:size].reshape(shape)

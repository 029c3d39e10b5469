"""Memory for what is thrown away at once, such as an image that is about to be shrunk.

An array of some hundred KB is new memory of the system to the allocator, which clears each of its
pages: that takes as long as to decode the image.
"""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

_MOST_KEPT = 2**23
"""Bytes that each thread keeps; what is larger is allocated each time."""


class Scratch(threading.local):
    """One array of bytes for each thread: what it held is overwritten by the next use."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def array(self, *shape: int) -> NDArray[np.uint8]:
        """An array of this shape, of any content, until the next is asked for in this thread."""
        size = math.prod(shape)
        kept = self._kept
        if kept.size < size:
            kept = np.empty(size, np.uint8)
            if size <= _MOST_KEPT:
                self._kept = kept
        return kept[:size].reshape(shape)

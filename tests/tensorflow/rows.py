"""Functions for workers of these tests, in a module without TensorFlow.

A worker imports the module of its function, and whatever that module imports. TensorFlow takes
seconds, and starts threads, after which no other worker can be forked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def batch(i: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    return np.full((64, 1000), i, np.float32), np.full(100_000, i % 251, np.uint8)


def failing_at_five(i: int) -> tuple[np.float32, np.float32]:
    return np.float32(1 // (5 - i)), np.float32(0)

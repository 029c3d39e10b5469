"""A program keeps arrays from workers that have ended, or were killed.

The arrays stay valid: their memory belongs to both, and is freed with the last of them.
"""

from __future__ import annotations

import os
import signal

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def make(i: int) -> tuple[int, NDArray[np.int64]]:
    return os.getpid(), np.full(10_000, i)


with iter(fl.from_range(100).map(make).prefetch(procs=1)) as run:
    kept = [next(run) for _ in range(5)]
    os.kill(kept[0][0], signal.SIGKILL)
    kept += [next(run) for _ in range(5)]
print([int(array[-1]) for _, array in kept])

# Seen:
# [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

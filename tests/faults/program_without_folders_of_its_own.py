"""A program has neither a home nor a temporary folder, as in minimal containers.

Workers need neither: their sockets have no names in the file system, and shared memory has none.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl

os.environ.update(HOME="/nonexistent", TMPDIR="/nonexistent", XDG_CACHE_HOME="/nonexistent")


def make(i: int) -> NDArray[np.int64]:
    return np.full(10_000, i)


print([int(x[0]) for x in fl.from_range(4).map(make).prefetch(procs=2)])

# Seen:
# [0, 1, 2, 3]

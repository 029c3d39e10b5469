"""The size of files is limited (`ulimit -f`), which limits shared memory as well.

The error names the element that is too large, and the limit. The elements before it are delivered.
"""

from __future__ import annotations

import resource

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def make(i: int) -> NDArray[np.uint8]:
    return np.zeros(10_000 if i < 3 else 2_000_000, np.uint8)


made = iter(fl.from_range(9).map(make).prefetch(procs=1))
print([next(made).nbytes for _ in range(3)])
next(made)

# Seen:
# [10000, 10000, 10000]
# flowdsl.errors.ElementError: map(make) failed on element 3 (row 3 of from_range(9)): FlowError('a
# worker process has no memory for the element: File too large: ulimit -f limits files, and shared
# memory with them')

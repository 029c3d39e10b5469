"""A single element is larger than `memory`.

One element at a time is always allowed: the pass is slower, and neither fails nor hangs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def make(i: int) -> NDArray[np.uint8]:
    return np.full(5_000_000, i, np.uint8)


flow = fl.from_range(6).map(make).prefetch(procs=2, memory=1_000_000)
print([int(x[-1]) for x in flow])

# Seen:
# [0, 1, 2, 3, 4, 5]

"""A program keeps more results than it may have files open (`ulimit -n`).

Arrays that are kept stay in the memory that a worker filled, each in a block of its own. A block
needs no descriptor, so only the memory limits how many are kept.
"""

from __future__ import annotations

import resource

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))


def make(i: int) -> NDArray[np.int64]:
    return np.full(2000, i)


kept = fl.from_range(500).map(make).prefetch(procs=2).collect()
print(len(kept), all((x == i).all() for i, x in enumerate(kept)))

# Seen:
# 500 True

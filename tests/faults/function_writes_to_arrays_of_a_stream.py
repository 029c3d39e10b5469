"""A function writes to the arrays of a stream, which nobody else has.

They are writable in this process, and arrive writable in workers, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def rows() -> Iterator[NDArray[np.float64]]:
    yield np.zeros(2)
    yield np.zeros(100_000)


def add_one(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x += 1
    return x


for workers in (0, 1):
    flow = fl.from_iterable(rows).map(add_one).prefetch(procs=workers)
    print([x.sum().item() for x in flow])

# Seen:
# [2.0, 100000.0]
# [2.0, 100000.0]

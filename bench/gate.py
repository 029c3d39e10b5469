"""The flows that ``make bench-gate`` compares with ``bench/baseline.json``.

Together they cover what a slowdown of flowdsl itself would touch: the loop around small functions,
each kind of operator, and the way of small and of large elements from a worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import flowdsl as fl
from bench.chains import grown, increment, transform


def named(i: int) -> dict[str, Any]:
    """A small element of Python values."""
    return {"key": f"row {i}", "value": i, "weight": i / 2}


def image(i: int) -> np.ndarray[Any, Any]:
    return np.full((96, 96, 3), i % 256, np.uint8)


loop = fl.from_range(100_000).map(increment).map(increment).filter(bool).map(increment)
operators = grown(8)(5_000)
rows = fl.from_range(50_000).map(transform).batch(64).prefetch(procs=1)
words = fl.from_range(50_000).map(named).shuffle(seed=1).prefetch(procs=1)
images = fl.from_range(5_000).map(image).batch(32).prefetch(procs=1)

"""A function never returns.

With `timeout=` its worker is ended, and another continues. An error names an element that ends
three workers this way, or the number set by `deaths=`.
"""

from __future__ import annotations

import time

import flowdsl as fl


def read(i: int) -> int:
    if i == 2:
        time.sleep(3600)
    return i


rows = fl.from_range(4).map(read)
rows.prefetch(procs=2, timeout=1, deaths=1).collect()

# Seen:
# flowdsl.errors.WorkerDied: a worker died at work on element 2 of map(read) (row 2 of
# from_range(4)); it was worker process ... (at work for more than 1 seconds)

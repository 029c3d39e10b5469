"""A function in a worker needs more memory than the process may have (`ulimit -v`).

The `MemoryError` is an error of the element, so it names the element, and `on_error` applies to it.
"""

from __future__ import annotations

import resource

import numpy as np

import flowdsl as fl

resource.setrlimit(resource.RLIMIT_AS, (1 << 36, resource.RLIM_INFINITY))


def make(i: int) -> int:
    return len(np.zeros(1 << (37 if i == 3 else 10), np.uint8))


flow = fl.from_range(5).map(make)
print(flow.prefetch(procs=1, on_error="skip").collect())
flow.prefetch(procs=1).collect()

# Seen:
# 1 element failed and was left out: map(make) failed on element 3 ...
# [1024, 1024, 1024, 1024]
# flowdsl.errors.ElementError: map(make) failed on element 3 (row 3 of from_range(5)):
# ...MemoryError...

"""A function in a worker closes descriptors that it has not opened, as `os.closerange` does.

The worker loses its connections, and ZeroMQ ends it with a line about the call that failed first.
The error names the element that ends three workers; with `on_error="skip"` the other rows are
delivered.
"""

from __future__ import annotations

import os

import flowdsl as fl


def careless(i: int) -> int:
    if i == 2:
        os.closerange(3, 256)
    return i


flow = fl.from_range(5).map(careless)
print(flow.prefetch(procs=1, on_error="skip").collect())

# Seen:
# ...
# 1 element failed and was left out: map(careless) failed on element 2 (row 2 of
# from_range(5)): WorkerDied('3 workers died, one after another, at work on element 2 of
# map(careless) (row 2 of from_range(5)); the last of them was worker process ... (signal SIGABRT)')
# [0, 1, 3, 4]

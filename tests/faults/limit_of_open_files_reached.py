"""A program has as many files open as it may (`ulimit -n`) when its workers are to start.

An error names the operator and the limit, and the pass does not hang. When files are closed, the
flow runs.
"""

from __future__ import annotations

import os
import resource

import flowdsl as fl

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
flow = fl.from_range(9).map(abs).prefetch(procs=1)
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(90)]
try:
    flow.collect()
except fl.FlowError as error:
    print(error)
for file in opened:
    os.close(file)
print(flow.collect())

# Seen:
# prefetch, for worker processes: 9 more descriptors must be open: Too many open files: close files,
# or raise ulimit -n
# [0, 1, 2, 3, 4, 5, 6, 7, 8]

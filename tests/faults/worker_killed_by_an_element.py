"""An element kills every worker that reads it.

After three deaths an error names it; with `on_error="skip"` the other elements are delivered.
"""

from __future__ import annotations

import os

import flowdsl as fl


def read(i: int) -> int:
    if i == 2:
        os._exit(9)
    return i


rows = fl.from_range(4).map(read)
print(rows.prefetch(procs=2, on_error="skip").collect())
rows.prefetch(procs=2).collect()

# Seen:
# 1 element failed and was left out: map(read) failed on element 2 (row 2 of
# from_range(4)): WorkerDied('3 workers died, one after another, at work on element 2 of map(read)
# (row 2 of from_range(4)); the last of them was worker process ... (exit status 9)')
# [0, 1, 3]
# flowdsl.errors.WorkerDied: 3 workers died, one after another, at work on element 2 of map(read)
# (row 2 of from_range(4)); the last of them was worker process ... (exit status 9)

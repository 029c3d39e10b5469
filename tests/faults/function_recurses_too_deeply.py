"""A function calls itself without end.

The error names the row, here and in a worker; the worker continues. With `on_error="skip"` the
other rows are delivered.
"""

from __future__ import annotations

import flowdsl as fl


def endless(i: int) -> int:
    return endless(i) if i == 2 else i


for workers in (0, 1):
    print(fl.from_range(4).map(endless).prefetch(procs=workers, on_error="skip").collect())

# Seen:
# 1 elements failed and were left out, the first: map(endless) failed on element 2 (row 2 of
# from_range(4)): RecursionError('maximum recursion depth exceeded'); the element was 2
# [0, 1, 3]
# 1 elements failed and were left out, the first: map(endless) failed on element 2 (row 2 of
# from_range(4)): RecursionError('maximum recursion depth exceeded'); the element was 2
# [0, 1, 3]

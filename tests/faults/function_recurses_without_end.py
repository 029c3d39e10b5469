"""A function calls itself without end.

Python's `RecursionError` is an error of the element, wherever the function runs.
"""

from __future__ import annotations

import flowdsl as fl


def depth(i: int) -> int:
    return i if i < 3 else depth(i + 1)


for workers in (0, 1):
    try:
        fl.from_range(5).map(depth).prefetch(procs=workers).collect()
    except fl.ElementError as error:
        print(str(error)[:91])

# Seen:
# map(depth) failed on element 3 (row 3 of from_range(5)): RecursionError('maximum recursion
# map(depth) failed on element 3 (row 3 of from_range(5)): RecursionError('maximum recursion

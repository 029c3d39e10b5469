"""A function in a worker process forks and returns in both processes.

The elements are those of the worker. The child process, which would write into the same memory,
ends where the function returns, and says why.
"""

from __future__ import annotations

import os

import flowdsl as fl


def forking(i: int) -> int:
    if i == 3 and os.fork() == 0:
        return -1
    return i


print(fl.from_range(6).map(forking).prefetch(procs=1).collect())

# Seen:
# flowdsl: a function that is run by a worker process has called os.fork() and returned in the child
# process, which ends here; end it by os._exit() in the function
# [0, 1, 2, 3, 4, 5]

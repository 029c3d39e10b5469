"""A function in a worker process forks and returns in both processes.

The flow yields the worker's elements. The child process, which shares the worker's memory, is ended
when the function returns, with a message.
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

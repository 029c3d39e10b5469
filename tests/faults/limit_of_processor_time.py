"""The processor time of a process is limited (`ulimit -t`), and a function never ends.

The worker is ended by the system when it has used the time. The error names the element and the
signal.
"""

from __future__ import annotations

import resource

import flowdsl as fl

resource.setrlimit(resource.RLIMIT_CPU, (1, resource.RLIM_INFINITY))


def search(i: int) -> int:
    while i == 1:
        pass
    return i


fl.from_range(3).map(search).prefetch(procs=1, deaths=1).collect()

# Seen:
# flowdsl.errors.WorkerDied: ... died... at work on element 1 of map(search) (row 1 of
# from_range(3)); ... worker process ... (signal SIGXCPU)

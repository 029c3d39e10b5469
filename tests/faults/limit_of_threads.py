"""The system refuses to start a thread: the process or its container has too many, or no memory.

An error names the operator and the limit. (libzmq alone would abort the process.)
"""

from __future__ import annotations

import resource
import threading

import flowdsl as fl

resource.setrlimit(resource.RLIMIT_AS, (1 << 36, resource.RLIM_INFINITY))
threading.stack_size(1 << 37)  # more than that: no thread can have its stack
doubled = fl.from_range(9).map(abs)
for flow in (doubled.prefetch(procs=1), doubled.prefetch(threads=1)):
    try:
        flow.collect()
    except fl.FlowError as error:
        print(str(error)[:75])

# Seen:
# prefetch, for worker processes: a thread cannot be started: ulimit -u or th
# prefetch(threads=1): a thread cannot be started: ulimit -u or the control g

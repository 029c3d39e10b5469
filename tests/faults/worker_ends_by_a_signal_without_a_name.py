"""A worker process ends by a real-time signal.

Such signals have numbers only. The error names the number, as it names other signals, the operator
and the row.
"""

from __future__ import annotations

import os
import signal

import flowdsl as fl


def end_itself(i: int) -> int:
    if i == 3:
        os.kill(os.getpid(), signal.SIGRTMIN + 6)
    return i


fl.from_range(10).map(end_itself).prefetch(procs=2).collect()

# Seen:
# flowdsl.errors.WorkerDied: 3 workers died, one after another, at work on element 3 of
# map(end_itself) (row 3 of from_range(10)); the last of them was worker process ... (signal 40)

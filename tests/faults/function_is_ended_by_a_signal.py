"""A signal ends a worker in the middle of a function: here, of a timer that the function has set.

The error names the element that ends three workers, and the signal. With `on_error="skip"` the
other rows are delivered.
"""

from __future__ import annotations

import signal
import time

import flowdsl as fl


def timed(i: int) -> int:
    if i == 2:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(1)
    return i


fl.from_range(5).map(timed).prefetch(procs=1).collect()

# Seen:
# flowdsl.errors.WorkerDied: 3 workers died, one after another, at work on element 2 of map(timed)
# (row 2 of from_range(5)); the last of them was worker process ... (signal SIGALRM)

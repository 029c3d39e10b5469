"""All workers are killed at the same moment, as by the memory guard of a container.

Others replace them, and every row is delivered once and in order.
"""

from __future__ import annotations

import os
import signal

import flowdsl as fl


def double(i: int) -> tuple[int, int]:
    return os.getpid(), 2 * i


made = iter(fl.from_range(2000).map(double).prefetch(procs=3))
values = [next(made) for _ in range(500)]
for worker in {pid for pid, _ in values}:
    os.kill(worker, signal.SIGKILL)
values += made
print([value for _, value in values] == list(range(0, 4000, 2)))

# Seen:
# True

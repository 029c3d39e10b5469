"""A function in a worker leaves threads running, which never end.

The pass ends with its last element, and the workers with the flow: nothing waits for such threads.
"""

from __future__ import annotations

import threading
import time

import flowdsl as fl


def leaves_a_thread(i: int) -> int:
    threading.Thread(target=time.sleep, args=(1000,), daemon=bool(i % 2)).start()
    return i


began = time.monotonic()
flow = fl.from_range(5).map(leaves_a_thread).prefetch(procs=1)
print(flow.collect(), flow.collect())
del flow
print(time.monotonic() - began < 10)

# Seen:
# [0, 1, 2, 3, 4] [0, 1, 2, 3, 4]
# True

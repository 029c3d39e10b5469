"""A program has a timer that interrupts system calls, and a default timeout of its sockets.

Neither changes how flowdsl waits for workers: all elements arrive, however long they take.
"""

from __future__ import annotations

import signal
import socket
import time

import flowdsl as fl

signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
socket.setdefaulttimeout(0.05)


def slowly(i: int) -> int:
    time.sleep(0.2 if i == 3 else 0.001)
    return i


print(sum(fl.from_range(20).map(slowly).prefetch(procs=2)))
signal.setitimer(signal.ITIMER_REAL, 0)

# Seen:
# 190

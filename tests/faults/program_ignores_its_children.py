"""A program ignores the ends of its child processes, as some servers do (`SIGCHLD`).

It is still known how a worker ended.
"""

from __future__ import annotations

import os
import signal

import flowdsl as fl

signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def leave(i: int) -> int:
    return i if i != 3 else os._exit(7)


fl.from_range(5).map(leave).prefetch(procs=1, deaths=1).collect()

# Seen:
# flowdsl.errors.WorkerDied: ... died... at work on element 3 of map(leave) (row 3 of
# from_range(5)); ... worker process ... (exit status 7)

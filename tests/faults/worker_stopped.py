"""A worker is stopped, by Ctrl-Z or a debugger that has left, and nobody continues it.

After five seconds, here after a few tenths, it is ended like a dead one, and its work is done
again.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import flowdsl as fl
from flowdsl.workers import processes

processes.SECONDS_STOPPED = 0.3  # not five here


def stop_once(i: int) -> int:
    if i == 5 and not Path("stopped").exists():
        Path("stopped").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return i


print(fl.from_range(10).map(stop_once).prefetch(procs=1).collect())

# Seen:
# [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

"""A program is stopped for a while, by Ctrl-Z or a batch system, and then continued.

Its workers wait for it with what they have computed, and the pass goes on where it was.
"""

from __future__ import annotations

import os
import signal
import time

import flowdsl as fl


def slowly(i: int) -> int:
    time.sleep(0.01)
    return i


if (program := os.fork()) == 0:
    made = iter(fl.from_range(30).map(slowly).prefetch(procs=1))
    next(made)
    os.kill(os.getpid(), signal.SIGSTOP)  # Ctrl-Z reaches the program alone, not its workers
    print(list(made) == list(range(1, 30)))
    os._exit(0)
os.waitpid(program, os.WUNTRACED)
time.sleep(0.2)
os.kill(program, signal.SIGCONT)
os.waitpid(program, 0)

# Seen:
# True

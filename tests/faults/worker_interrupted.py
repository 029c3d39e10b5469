"""Signals that end a process are sent to a worker alone: an interrupt, a hang-up, an alarm.

Each counts as a death of the worker, not as Ctrl-C in the program: its work is done again.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import flowdsl as fl

NUMBERS = [signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1]


def receive(i: int) -> int:
    if i < len(NUMBERS) and not Path(f"{i}").exists():
        Path(f"{i}").touch()
        os.kill(os.getpid(), NUMBERS[i])
    return i


made = iter(fl.from_range(8).map(receive).prefetch(procs=1))
print(list(made), made.statistics().stages[0].deaths)

# Seen:
# [0, 1, 2, 3, 4, 5, 6, 7] 4

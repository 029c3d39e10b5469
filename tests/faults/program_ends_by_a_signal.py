"""A program with workers is terminated, loses its terminal, or is killed.

Its workers end with it, even in the middle of an element, and so does the process that forks them.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import flowdsl as fl


def wait(i: int) -> int:
    time.sleep(60 if i else 0)
    return i


def processes_of(program: int) -> list[str]:
    names = list[str]()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            names.append(process.read_text())
        except OSError:  # it has ended
            continue
    return [name for name in names if f"process {program}\0" in name]


for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
    if (program := os.fork()) == 0:
        run = iter(fl.from_range(9).map(wait).prefetch(procs=1))
        next(run)
        assert len(processes_of(os.getpid())) == 2
        os.kill(os.getpid(), number)
    _, status = os.waitpid(program, 0)
    deadline = time.monotonic() + 10
    while (left := processes_of(program)) and time.monotonic() < deadline:
        time.sleep(0.01)
    print(signal.Signals(os.WTERMSIG(status)).name, left)

# Seen:
# SIGTERM []
# SIGHUP []
# SIGKILL []

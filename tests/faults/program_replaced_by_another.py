"""A program replaces itself by another in the middle of a pass (`os.execv`).

The workers end: the other program gets neither processes nor open files from the pass.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import flowdsl as fl

SHOW = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:3])"


def worker_of(program: int) -> list[str]:
    title = f"flowdsl worker of process {program}\0"
    return [p.parent.name for p in Path("/proc").glob("[0-9]*/cmdline") if title in _text(p)]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""


if (program := os.fork()) == 0:
    run = iter(fl.from_range(10**6).map(abs).prefetch(procs=1))
    next(run)
    print("workers:", len(worker_of(os.getpid())))
    os.execv(sys.executable, [sys.executable, "-S", "-c", SHOW])
os.waitpid(program, 0)
deadline = time.monotonic() + 10
while worker_of(program) and time.monotonic() < deadline:
    time.sleep(0.01)
print("workers:", len(worker_of(program)))

# Seen:
# workers: 1
# [0, 1, 2]
# workers: 0

"""A function in a worker changes its folder, variables, umask and signal handlers.

The program's own are unchanged, and the elements are the same.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import flowdsl as fl


def changes(i: int) -> int:
    os.chdir("/")
    os.environ.clear()
    os.umask(0o777)
    os.nice(3)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return i


before = Path.cwd(), len(os.environ), os.nice(0)
print(fl.from_range(5).map(changes).prefetch(procs=2).collect())
print((Path.cwd(), len(os.environ), os.nice(0)) == before)

# Seen:
# [0, 1, 2, 3, 4]
# True

"""A worker is killed, by the system's memory guard or by a user.

Another worker replaces it and repeats its tasks: no row is lost or delivered twice, and the order
is kept.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import flowdsl as fl


def read(i: int) -> int:
    if i == 50 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return i


print(fl.from_range(100).map(read).prefetch(procs=2).collect() == list(range(100)))

# Seen:
# True

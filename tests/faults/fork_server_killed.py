"""The process that forks the workers is killed, or stopped, in the middle of a pass.

The workers continue; later ones are started by another such process.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import flowdsl as fl


def leave_once(i: int) -> int:
    if i == 50 and not Path("left").exists():
        Path("left").touch()
        os._exit(1)  # so that another worker is needed
    return i


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


made = iter(fl.from_range(100).map(leave_once).map(lambda i: (i, os.getppid())).prefetch(procs=1))
first, server = next(made)
os.kill(server, signal.SIGKILL)
print([first, *(i for i, _ in made)] == list(range(100)))

# Seen:
# True

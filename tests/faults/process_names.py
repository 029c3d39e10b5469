"""Somebody looks for the processes of a program in `ps` or `top`, to see what uses the machine.

Workers have a name that says whose they are, and so has the process that forks them.
"""

from __future__ import annotations

import os
from pathlib import Path

import flowdsl as fl


def shown(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").replace(str(os.getpid()), "ME")


worker = fl.from_range(1).map(lambda _: os.getpid()).prefetch(procs=1)
made = iter(worker)
pid = next(made)
parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
print(shown(pid))
print(shown(parent))

# Seen:
# flowdsl worker of process ME
# flowdsl forks: starts the workers of process ME

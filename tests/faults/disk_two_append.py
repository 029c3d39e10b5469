"""Two programs append to one store at the same time.

The second is refused immediately. The first continues.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import flowdsl as fl


def take_long(i: int) -> int:
    Path("begun").touch()
    time.sleep(60)
    return i


fl.from_range(3).write_lmdb("rows.lmdb")
if (child := os.fork()) == 0:
    fl.from_range(9).map(take_long).write_lmdb("rows.lmdb", append=True)
while not Path("begun").exists():
    time.sleep(0.01)
try:
    fl.from_range(2).write_lmdb("rows.lmdb", append=True)
finally:
    os.kill(child, signal.SIGKILL)

# Seen:
# flowdsl.errors.InvalidFlow: write_lmdb: 'rows.lmdb' is being appended to by another writer

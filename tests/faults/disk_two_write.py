"""Two programs write one file at the same time, each with `overwrite=True`.

Each writes to a separate temporary file. The result is the complete file of the program that ends
last; rows are never mixed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import flowdsl as fl


def wait_for_the_other(i: int) -> int:
    while i == 3 and not Path("rows.lmdb").exists():
        time.sleep(0.01)
    return i


if (child := os.fork()) == 0:
    fl.from_range(5).map(wait_for_the_other).write_lmdb("rows.lmdb", overwrite=True)
    os._exit(0)
fl.from_range(2).write_lmdb("rows.lmdb", overwrite=True)
os.waitpid(child, 0)
print(fl.from_lmdb("rows.lmdb").collect(), os.listdir())

# Seen:
# [0, 1, 2, 3, 4] ['rows.lmdb']

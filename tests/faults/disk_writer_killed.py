"""A writer is killed.

An existing file is unchanged; the new rows never appear in part. The next writer in the folder
removes the remains.
"""

from __future__ import annotations

import os
import signal

import flowdsl as fl


def die_at(i: int) -> int:
    if i == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


fl.from_range(3).write_lmdb("rows.lmdb")
if (child := os.fork()) == 0:
    fl.from_range(9).map(die_at).write_lmdb("rows.lmdb", overwrite=True)
os.waitpid(child, 0)
print(fl.from_lmdb("rows.lmdb").collect())
fl.from_items(["one"]).write_text("other.txt")
print(sorted(os.listdir()))

# Seen:
# [0, 1, 2]
# ['other.txt', 'rows.lmdb']

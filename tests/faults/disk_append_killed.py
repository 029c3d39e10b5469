"""A writer that appends to a store is killed.

The rows that it had added are there, and the store says that it is incomplete. With `partial=True`
they are read, and another `append=True` goes on.
"""

from __future__ import annotations

import os
import signal

import flowdsl as fl


def die_at(i: int) -> int:
    if i == 5000:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


if (child := os.fork()) == 0:
    fl.from_range(9000).map(die_at).write_lmdb("rows.lmdb", append=True)
os.waitpid(child, 0)
try:
    fl.from_lmdb("rows.lmdb")
except fl.SourceError as error:
    print(error)
n = len(fl.from_lmdb("rows.lmdb", partial=True))
fl.from_range(9000).skip(n).write_lmdb("rows.lmdb", append=True)
print(fl.from_lmdb("rows.lmdb").collect() == list(range(9000)))

# Seen:
# from_lmdb: 'rows.lmdb' is incomplete: its writer was stopped, or is still writing, after ... rows.
# write_lmdb(path, append=True) adds the missing rows; from_lmdb(path, partial=True) reads the rows
# that are there
# True

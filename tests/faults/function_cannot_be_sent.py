"""A function refers to an object that no other process can have: a connection, an open file.

This is refused before anything runs. The error names the operator and its argument, and suggests a
correction.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import flowdsl as fl

database = sqlite3.connect(":memory:")
log = Path("log.txt").open("w")  # noqa: SIM115  # open while workers run


def looked_up(i: int) -> object:
    return database.execute("select ?", (i,)).fetchone()


def written(i: int) -> int:
    log.write(f"{i}\n")
    return i


for function in (looked_up, written):
    try:
        fl.from_range(3).map(function).prefetch(procs=1).collect()
    except fl.FlowError as error:
        print(error)

# Seen:
# map(looked_up): func cannot be sent to a worker process: cannot pickle 'sqlite3.Connection'
# object; make what it needs inside the function, or run without prefetch(procs=...)
# map(written): func cannot be sent to a worker process: cannot pickle the open file 'log.txt'; make
# what it needs inside the function, or run without prefetch(procs=...)

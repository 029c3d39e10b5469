"""A program has closed its standard input, output and error, as daemons do.

The null device is opened in their place: what a function prints is lost, and never written to a
socket that got the number of standard output.
"""

from __future__ import annotations

import os

import flowdsl as fl


def say(i: int) -> int:
    print("number", i, flush=True)
    return i


output = os.dup(1)
for standard in (0, 1, 2):
    os.close(standard)
made = fl.from_range(4).map(say).prefetch(procs=1).collect()
os.write(output, f"{made}\n".encode())

# Seen:
# [0, 1, 2, 3]

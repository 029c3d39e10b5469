"""Functions print in workers, and the program has no `sys.stdout` of its own.

What they print is written to the standard output that the program has when the pass begins.
"""

from __future__ import annotations

import os
import sys

import flowdsl as fl


def say(i: int) -> int:
    print("element", i, flush=True)
    return i


standard, sys.stdout = sys.stdout, None  # as in programs without a console
reading, writing = os.pipe()
before = os.dup(1)
os.dup2(writing, 1)
made = fl.from_range(3).map(say).prefetch(procs=1).collect()
os.dup2(before, 1)
sys.stdout = standard
print(made, os.read(reading, 1000).decode().split("\n"))

# Seen:
# [0, 1, 2] ['element 0', 'element 1', 'element 2', '']

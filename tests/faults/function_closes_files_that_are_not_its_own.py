"""A function closes the standard streams of its worker, or prints to a pipe whose reader has left.

The elements are delivered. What cannot be printed is an error of the function, as in the program
itself.
"""

from __future__ import annotations

import os

import flowdsl as fl


def close(i: int) -> int:
    if i == 3:
        os.close(1)
        os.close(2)
    return i


def say(i: int) -> int:
    os.write(1, b"hello")
    return i


print(fl.from_range(6).map(close).prefetch(procs=1).collect())
reading, writing = os.pipe()
output = os.dup(1)
os.dup2(writing, 1)
os.close(reading)
os.close(writing)
try:
    fl.from_range(6).map(say).prefetch(procs=1).collect()
except fl.ElementError as error:
    os.write(output, f"{error}\n".encode())
os.dup2(output, 1)

# Seen:
# [0, 1, 2, 3, 4, 5]
# map(say) failed on element 0 (row 0 of from_range(6)): BrokenPipeError(32, 'Broken pipe'); the
# element was 0

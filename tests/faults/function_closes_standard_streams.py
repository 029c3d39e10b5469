"""A function in a worker closes standard input, output and error.

Its own prints are lost. The elements are the same, and the program's streams stay open.
"""

from __future__ import annotations

import os

import flowdsl as fl


def quiet(i: int) -> int:
    if i == 2:
        for stream in (0, 1, 2):
            os.close(stream)
    return i


print(fl.from_range(5).map(quiet).prefetch(procs=1).collect())

# Seen:
# [0, 1, 2, 3, 4]

"""A function in a worker starts processes: a pool of `multiprocessing`, or another program.

They work as in the program, and the elements are delivered in order.
"""

from __future__ import annotations

import multiprocessing
import subprocess

import flowdsl as fl


def by_a_pool(i: int) -> int:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(abs, [i, -i]))


def by_a_program(i: int) -> int:
    return int(subprocess.check_output(["echo", str(i)]))


for function in (by_a_pool, by_a_program):
    print(fl.from_range(3).map(function).prefetch(procs=1).collect())

# Seen:
# [0, 2, 4]
# [0, 1, 2]

"""A function reads from an invalid address, as libraries with a bug in native code do.

Only the worker ends. An error names the element and the signal, and with `on_error` the other
elements are delivered.
"""

from __future__ import annotations

import ctypes

import flowdsl as fl


def read(i: int) -> int:
    if i == 3:
        ctypes.string_at(0)
    return i


flow = fl.from_range(6).map(read)
skipped: list[fl.ElementError] = []
print(flow.prefetch(procs=1, deaths=1, on_error=skipped.append).collect(), len(skipped))
flow.prefetch(procs=1, deaths=1).collect()

# Seen:
# 1 element failed and was left out: ...
# [0, 1, 2, 4, 5] 1
# flowdsl.errors.WorkerDied: ... died... at work on element 3 of map(read) (row 3 of
# from_range(6)); ... worker process ... (signal SIGSEGV)

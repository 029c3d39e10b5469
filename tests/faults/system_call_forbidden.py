"""A container forbids the system call that creates shared memory (`memfd_create`).

An error says so before a task is done. Threads need no shared memory.
"""

from __future__ import annotations

import ctypes
import errno
import platform

import flowdsl as fl

MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}[platform.machine()]
NO_NEW_PRIVILEGES, SET_SECCOMP, BY_FILTER = 38, 22, 2


class Rule(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    ]


class Filter(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("rules", ctypes.POINTER(Rule))]


rules = (Rule * 4)(
    Rule(0x20, 0, 0, 0),  # load the number of the call
    Rule(0x15, 0, 1, MEMFD_CREATE),
    Rule(0x06, 0, 0, 0x50000 | errno.EPERM),
    Rule(0x06, 0, 0, 0x7FFF0000),
)
prctl = ctypes.CDLL(None).prctl
prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
prctl(SET_SECCOMP, BY_FILTER, ctypes.byref(Filter(len(rules), rules)))
flow = fl.from_range(3).map(abs)
print(flow.prefetch(threads=1).collect())
flow.prefetch(procs=1).collect()

# Seen:
# [0, 1, 2]
# flowdsl.errors.FlowError: prefetch: worker processes cannot share memory: Operation not permitted:
# a filter of system calls may forbid it, as some containers have

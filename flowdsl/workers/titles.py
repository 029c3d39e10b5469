"""Titles: the names by which ``ps`` and ``top`` show the processes of flowdsl.

A worker is forked, so without a title it has the command line of the fork server: an interpreter
with a page of arguments.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""The fields ``arg_start`` and ``arg_end`` of ``/proc/PID/stat``, counted after the name."""


def set_title(name: str, more: str = "") -> None:
    """Show this process under a name, and with more text where the command line is shown.

    The arguments of the process are overwritten, as ``setproctitle`` does; Python has copied them.
    Without ``/proc`` nothing changes.
    """
    with suppress(OSError, IndexError, ValueError):
        with open("/proc/self/comm", "w") as comm:
            comm.write(name)  # the system keeps 15 bytes
        with open("/proc/self/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
        room = end - start - 1  # the last byte stays 0, as a mark that these are arguments
        if start and room > 0:
            text = f"{name}{more}".encode()[:room]
            ctypes.memmove(start, text.ljust(room, b"\0"), room)

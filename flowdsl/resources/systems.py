"""What not every operating system has, with what takes its place there."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock

BINARY: int = getattr(os, "O_BINARY", 0)
"""A flag of ``os.open``: without it, Windows translates the ends of lines."""

_one_at_a_time = Lock()


def _read_at(file: int, count: int, start: int) -> bytes:
    with _one_at_a_time:
        os.lseek(file, start, os.SEEK_SET)
        return os.read(file, count)


read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_at)
"""Read bytes at an offset, from any thread."""

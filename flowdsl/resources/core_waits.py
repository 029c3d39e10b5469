"""The time for which a thread was ready to run, and waited for a core.

The problem: a thread that waits for a core uses no CPU time, as one that waits for a file. Linux
counts the former for each thread, in nanoseconds, in a file of ``/proc``. A descriptor of that file
refers to the thread that opened it. So each thread opens it once: a reading then takes about 1 µs,
and 6 to 10 µs if it opens the file each time.
"""

from __future__ import annotations

import contextlib
import os
import threading

_FILE = "/proc/thread-self/schedstat"


class _Counter:
    """The open file of the thread that creates it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._descriptor: int | None = None
        if hasattr(os, "pread"):  # not on Windows
            with contextlib.suppress(OSError):  # only Linux has the file
                self._descriptor = os.open(_FILE, os.O_RDONLY)

    def seconds(self) -> float:
        if self._descriptor is None:
            return 0.0
        try:
            return int(os.pread(self._descriptor, 100, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):  # a user's function closed the descriptor
            return 0.0

    def __del__(self) -> None:  # when the thread ends
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                # A user's function may have closed it, and opened another file by this number.
                if os.readlink(f"/proc/self/fd/{self._descriptor}").endswith("/schedstat"):
                    os.close(self._descriptor)


class _Thread(threading.local):
    counter: _Counter | None = None


_thread = _Thread()


def waited_for_core() -> float:
    """Return the seconds for which this thread has waited for a core; 0 where it is not counted.

    A wait is counted when it ends.

    >>> waited_for_core() >= 0
    True
    """
    counter = _thread.counter
    if counter is None or counter.process != os.getpid():  # a fork's descriptor is its parent's
        counter = _thread.counter = _Counter()
    return counter.seconds()

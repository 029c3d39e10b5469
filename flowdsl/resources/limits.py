"""Limits of the system on descriptors, threads and memory, as errors that say what to change.

libzmq aborts the whole process if it cannot open a descriptor or start a thread. So code that
creates a context calls ``check_room`` first, which makes sure of both.
"""

from __future__ import annotations

import errno
import os
import threading
import time

from flowdsl.errors import FlowError

_TO_CHANGE = {
    errno.EAGAIN: "ulimit -u or the control group limits processes and threads",
    errno.EFBIG: "ulimit -f limits files, and shared memory with them",
    errno.EMFILE: "close files, or raise ulimit -n",
    errno.ENFILE: "all programs of the system together have too many files open",
    errno.ENOMEM: "memory is used up, or limited by ulimit -v, ulimit -d or the control group",
    errno.ENOSPC: "the memory of the system or of its control group is used up",
    errno.ENOSYS: "the system lacks this call, or a filter of system calls forbids it",
    errno.EPERM: "a filter of system calls may forbid it, as some containers have",
}

SECONDS_TO_LEAVE = 1.0
"""The maximum time for which the end of a thread is awaited."""


def explained(error: OSError) -> str:
    """Return what the system says of an error, and which limit to change.

    >>> explained(OSError(24, "Too many open files"))
    'Too many open files: close files, or raise ulimit -n'
    """
    said = error.strerror or str(error)
    advice = _TO_CHANGE.get(error.errno or 0)
    return said if advice is None else f"{said}: {advice}"


def start_thread(thread: threading.Thread, who: str) -> None:
    """Start a thread.

    Raises:
        FlowError: The system refuses it; the error begins with ``who``.
    """
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise FlowError(
            f"{who}: a thread cannot be started: ulimit -u or the control group limits threads, or "
            f"ulimit -v or ulimit -d memory, of which a thread reserves ulimit -s for its stack"
        ) from error


def check_room(who: str, threads: int, descriptors: int) -> None:
    """Make sure that this process can start some threads and open some files.

    Raises:
        FlowError: It cannot; the error begins with ``who``.
    """
    _check_descriptors(who, descriptors)
    leave = threading.Event()
    started = list[threading.Thread]()
    try:
        for _ in range(threads):
            thread = threading.Thread(target=leave.wait, name="flowdsl limits", daemon=True)
            start_thread(thread, who)
            started.append(thread)
    finally:
        leave.set()
        for thread in started:
            thread.join()
            _await_end(thread)


def _check_descriptors(who: str, count: int) -> None:
    opened = list[int]()
    try:
        for _ in range(count):
            opened.append(_open_any())
    except OSError as error:
        raise FlowError(
            f"{who}: {count} more descriptors must be open: {explained(error)}"
        ) from error
    finally:
        for fd in opened:
            os.close(fd)


def _open_any() -> int:
    """Open a descriptor, of the kind that libzmq needs where the system has it."""
    if (eventfd := getattr(os, "eventfd", None)) is not None:
        fd: int = eventfd(0)
        return fd
    return os.open(os.devnull, os.O_RDONLY)


def _await_end(thread: threading.Thread) -> None:
    """Wait until the system does not count a thread any more, which may be after its ``join``."""
    entry = f"/proc/self/task/{thread.native_id}"
    deadline = time.monotonic() + SECONDS_TO_LEAVE
    while os.path.exists(entry) and time.monotonic() < deadline:
        time.sleep(0.0001)

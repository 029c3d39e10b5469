"""Helpers of the laws for errors, threads that are left behind, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep

PATIENCE = 20.0
"""Seconds to wait until a thread ends: far more than it needs on a busy machine."""


def error_of(use: Callable[[], object]) -> Exception | None:
    """Return the error that a call raises, or None."""
    try:
        use()
    except Exception as error:
        return error
    return None


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    """Require that threads started in the block end soon after it.

    The thread in which pyzmq releases messages is the process's, and stays.
    """
    before = {*threading.enumerate()}
    yield
    until = monotonic() + PATIENCE
    while left := [t for t in threading.enumerate() if t not in before and _is_ours(t)]:
        if monotonic() > until:
            raise AssertionError(f"after close there are the threads {left}")
        sleep(0.01)


def _is_ours(thread: threading.Thread) -> bool:
    return thread.is_alive() and type(thread).__module__ != "zmq.utils.garbage"


def is_interrupted(use: Callable[[], object]) -> bool:
    """Return True if Ctrl-C ends a call while it waits; works only in the main thread.

    The signal is sent to this process.
    """
    main = threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        _until_it_waits(main)
        signal.pthread_kill(main.ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        use()
    except KeyboardInterrupt:
        return True
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    return False


def _until_it_waits(thread: threading.Thread) -> None:
    """Return when a thread has stayed at the same instruction for a while."""
    times, before = 0, None
    while times < 10:
        frame = sys._current_frames()[thread.ident or 0]
        now = (id(frame), frame.f_lasti)
        times, before = times + 1 if now == before else 0, now
        sleep(0.02)

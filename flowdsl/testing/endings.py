"""How the laws look at errors, and at what is left behind."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep

PATIENCE = 20.0
"""Seconds that a thread may take to end: far more than it needs on a busy machine."""


def error_of(use: Callable[[], object]) -> Exception | None:
    """The error that a call ends with, if it does."""
    try:
        use()
    except Exception as error:
        return error
    return None


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    """Require that threads begun in the block have ended after it, or soon after."""
    before = {*threading.enumerate()}
    yield
    until = monotonic() + PATIENCE
    while left := [one for one in threading.enumerate() if one not in before and one.is_alive()]:
        if monotonic() > until:
            raise AssertionError(f"after close there are the threads {left}")
        sleep(0.01)


def is_interrupted(use: Callable[[], object]) -> bool:
    """Whether Ctrl-C, once this thread waits within a call, ends that call; only the main thread's.

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
    """Return once a thread has stood at one place for a while."""
    times, before = 0, None
    while times < 10:
        frame = sys._current_frames()[thread.ident or 0]
        now = (id(frame), frame.f_lasti)
        times, before = times + 1 if now == before else 0, now
        sleep(0.02)

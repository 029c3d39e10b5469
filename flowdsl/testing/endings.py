"""Helpers of the laws for errors, threads that are left behind, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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

    The signal is sent to this process, unless the call has ended.
    """
    main, has_ended = threading.main_thread(), threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        _until_it_waits(main, has_ended)
        if not has_ended.is_set():
            signal.pthread_kill(main.ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        use()
    except KeyboardInterrupt:
        return True
    finally:
        has_ended.set()
        with suppress(KeyboardInterrupt):  # sent when the call was about to end
            thread.join()
        thread.join()
        signal.signal(signal.SIGINT, before)
    return False


def _until_it_waits(thread: threading.Thread, has_ended: threading.Event) -> None:
    """Return when a thread has stayed at an instruction for a while, or its call has ended."""
    times, before = 0, None
    while times < 10 and not has_ended.wait(0.02):
        frame = sys._current_frames()[thread.ident or 0]
        now = (id(frame), frame.f_lasti)
        times, before = times + 1 if now == before else 0, now

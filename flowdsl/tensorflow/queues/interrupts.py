"""Ctrl-C while TensorFlow waits: it is noticed in a thread, which ends what is waited for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def on_ctrl_c(end: Callable[[], object]) -> Iterator[None]:
    """Within the block, Ctrl-C calls ``end`` at once, in a thread; ``KeyboardInterrupt`` follows.

    The interpreter itself notices a signal only when TensorFlow returns, and an operation that
    waits for a queue does not. Nothing is done where the block is not in the main thread, or where
    the program handles SIGINT in its own way.

    Source: ``signal.set_wakeup_fd`` of Python, as its event loops use it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    before = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    noticed = threading.Event()

    def watch() -> None:
        for number in _numbers(ours, before):
            if number == signal.SIGINT and _is_pythons(signal.SIGINT):
                noticed.set()
                end()

    thread = threading.Thread(target=watch, name="Ctrl-C", daemon=True)
    thread.start()
    try:
        yield
    except Exception as error:
        # TensorFlow makes a RuntimeError of an interrupt that comes while it makes an exception.
        if noticed.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.set_wakeup_fd(before)
        os.close(theirs)  # the thread reads the end of the pipe
        thread.join()
        os.close(ours)


def _numbers(signals: int, before: int) -> Iterator[int]:
    """The numbers of signals as they come; they are handed on to whoever read them before."""
    while numbers := os.read(signals, 64):
        if before != -1:
            with suppress(OSError):  # it is full: who reads it is told already
                os.write(before, numbers)
        yield from numbers


def _is_pythons(number: int) -> bool:
    return signal.getsignal(number) is signal.default_int_handler

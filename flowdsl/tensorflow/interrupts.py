"""Ctrl-C during calls of TensorFlow.

Python handles it only when a call of TensorFlow returns, so a thread notices it and ends the call
(``on_ctrl_c``). It may be hidden by another exception, raised by a scope of TensorFlow that it has
left half open (``raising_hidden_interrupts``).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def on_ctrl_c(end: Callable[[], object]) -> Iterator[None]:
    """Within the block, Ctrl-C calls ``end`` at once, in a thread; ``KeyboardInterrupt`` follows.

    The interpreter handles a signal only when TensorFlow returns, and an operation that waits for a
    queue does not return. This does nothing if the block is not in the main thread, or if the
    program handles SIGINT itself.

    Source: ``signal.set_wakeup_fd`` of Python, as used by ``asyncio``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    previous = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    noticed = threading.Event()

    def watch() -> None:
        for number in _numbers(read_end, previous):
            if number == signal.SIGINT and _has_pythons_handler(signal.SIGINT):
                noticed.set()
                end()

    thread = threading.Thread(target=watch, name="Ctrl-C", daemon=True)
    thread.start()
    try:
        yield
    except Exception as error:
        # An interrupt while TensorFlow builds an exception becomes a RuntimeError.
        if noticed.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.set_wakeup_fd(previous)
        os.close(write_end)  # ends the thread: its next read returns nothing
        thread.join()
        os.close(read_end)


@contextmanager
def raising_hidden_interrupts() -> Iterator[None]:
    """Raise the ``KeyboardInterrupt`` that another exception hides.

    A scope of TensorFlow that an interrupt leaves half open raises a ``RuntimeError`` when it
    closes, which a program that handles Ctrl-C would not expect.
    """
    try:
        yield
    except Exception as error:
        hidden: BaseException | None = error
        while hidden is not None and not isinstance(hidden, KeyboardInterrupt):
            hidden = hidden.__context__
        if hidden is not None:
            raise KeyboardInterrupt from error
        raise


def _numbers(signals: int, previous: int) -> Iterator[int]:
    """Yield the numbers of arriving signals, and forward them to the previous descriptor."""
    while numbers := os.read(signals, 64):
        if previous != -1:
            with suppress(OSError):  # it is full, so its reader is awake already
                os.write(previous, numbers)
        yield from numbers


def _has_pythons_handler(number: int) -> bool:
    return signal.getsignal(number) is signal.default_int_handler

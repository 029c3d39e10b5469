"""Cancellation of blocking waits.

A run belongs to the thread that iterates it, so another thread cannot close it while it waits for
a queue, a socket or a worker. Such a wait polls ``is_cancelled`` instead, and ends when it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("_cancelled", default=None)


def is_cancelled() -> bool:
    """Return True if the wait of this thread should end."""
    cancelled = _cancelled.get()
    return cancelled is not None and cancelled()


@contextmanager
def cancelled_when(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Within the block, blocking waits of this thread end once ``cancelled()`` is true."""
    token = _cancelled.set(cancelled)
    try:
        yield
    finally:
        _cancelled.reset(token)

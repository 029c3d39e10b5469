"""Whether anyone still wants what this thread waits for: a source that waits long asks for it.

A run belongs to the thread that iterates it, so another thread cannot close one that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("_asked", default=None)


def is_wanted() -> bool:
    """Whether to go on waiting."""
    asked = _asked.get()
    return asked is None or asked()


@contextmanager
def while_wanted(asked: Callable[[], bool]) -> Iterator[None]:
    """Within the block, what this thread waits for is wanted as long as ``asked()`` says so."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)

"""Ctrl-C during a call of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_first() -> Iterator[None]:
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

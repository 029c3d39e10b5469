"""The standard streams, which a program may lack (``pythonw``, daemons) or have replaced."""

from __future__ import annotations

import contextlib
import os
import sys


def fill_standard_descriptors() -> None:
    """Open the null device in the place of standard descriptors that are closed, as in daemons.

    Otherwise a socket gets such a number, and what is printed is written to it.
    """
    for standard in (0, 1, 2):
        try:
            os.fstat(standard)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != standard:
                os.dup2(opened, standard)
                os.close(opened)
            os.set_inheritable(standard, True)


def is_terminal(stream: object) -> bool:
    """Return True if a standard stream exists and writes to a terminal."""
    isatty = getattr(stream, "isatty", None)
    try:
        return isatty is not None and bool(isatty())
    except (OSError, ValueError):  # such as "I/O operation on closed file"
        return False


def write_to_standard_error(text: str) -> None:
    """Write a text for a user to read; without a stream, or if it cannot be written, drop it.

    ``warnings`` does the same: a program must not fail because of a text that informs about it.
    """
    if (stream := sys.stderr) is not None:  # pyright: ignore[reportUnnecessaryComparison]  # its type says never
        with contextlib.suppress(OSError, ValueError):
            stream.write(text)

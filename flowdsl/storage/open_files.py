"""Files for reading: a process keeps only a limited number of them open.

A flow may read thousands of files, and the system limits how many a process may have open: often
1,024, for everything that it does. So a file is closed while others are needed, and opened again
when it is read next. All formats share the limit, a quarter of the system's.

What to close is chosen by the clock algorithm: a file that was used since it was last considered
gets a second chance. Using a file then costs one attribute, where a list in the order of use would
need a lock.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from flowdsl.resources.systems import BINARY, NO_WAITING, most_open_files

H = TypeVar("H")


class NotAFile(OSError):
    """Raised for a path that is not a regular file; ``strerror`` says what it is."""


class Descriptor:
    """The descriptor of a file that is open for reading; closed when it is garbage-collected."""

    __slots__ = ("__weakref__", "number", "status")

    def __init__(self, path: str) -> None:
        """Open a regular file.

        Raises:
            NotAFile: It is a folder, or a pipe, socket or device, which may block, or never end.
            OSError: The file cannot be opened.
        """
        self.number = -1
        _require_file(os.stat(path).st_mode)  # opening a device may already do something
        self.number = os.open(path, os.O_RDONLY | BINARY | NO_WAITING)
        self.status = os.fstat(self.number)
        _require_file(self.status.st_mode)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # os may be gone
        if self.number >= 0:
            close(self.number)


def _require_file(mode: int) -> None:
    if what := not_a_file(mode):
        raise NotAFile(0, what)


def not_a_file(mode: int) -> str | None:
    """Return what a path of this mode is, unless it is a regular file.

    >>> not_a_file(stat.S_IFDIR)
    'is a folder, not a file'
    """
    if stat.S_ISREG(mode):
        return None
    return next((what for test, what in _KINDS if test(mode)), "is not a file")


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "is a folder, not a file"),
    (stat.S_ISFIFO, "is a pipe, not a file"),
    (stat.S_ISSOCK, "is a socket, not a file"),
    (stat.S_ISCHR, "is a device, not a file"),
    (stat.S_ISBLK, "is a device, not a file"),
    (stat.S_ISLNK, "is a link that leads to itself"),
)


class Reopened(Generic[H]):
    """A handle of a file that may be closed between two uses, and is opened again.

    ``open`` returns the handle, which closes its file when it is garbage-collected.
    """

    __slots__ = ("__weakref__", "_open", "handle", "used")

    def __init__(self, open: Callable[[], H]) -> None:  # noqa: A002  # what it does
        self._open = open
        self.handle: H | None = None
        self.used = False

    def get(self) -> H:
        """Return the handle; keep a reference to it while it is used.

        Raises:
            Whatever ``open`` raises.
        """
        self.used = True
        handle = self.handle
        if handle is None:
            handle = self.handle = self._open()
            _keep(self)
        return handle


_kept: deque[weakref.ref[Reopened[object]]] = deque()
"""The handles in the order in which they are considered. Each operation on a deque is atomic."""

_opened = 0
"""The number of files that were opened since the last call of ``_drop_closed``."""


def _keep(one: Reopened[H]) -> None:
    """Add an open handle, and close others beyond the limit."""
    global _opened
    _kept.append(weakref.ref(one))  # type: ignore[arg-type]  # only ``handle`` is set, to None
    _opened += 1
    most = most_open_files() // 4
    if len(_kept) > most and _opened > most // 8:  # a few steps for each file
        _opened = 0
        _drop_closed()
    while len(_kept) > most:
        reference = _next()
        if reference is None:
            return
        oldest = reference()
        if oldest is None or oldest.handle is None:
            continue
        if oldest.used:
            oldest.used = False
            _kept.append(reference)
        else:
            oldest.handle = None


def _drop_closed() -> None:
    """Drop the entries of files that are closed, most of which were garbage-collected."""
    for _ in range(len(_kept)):
        reference = _next()
        if reference is None:
            return
        one = reference()
        if one is not None and one.handle is not None:
            _kept.append(reference)


def _next() -> weakref.ref[Reopened[object]] | None:
    """Remove and return the entry to consider next; None if another thread took the last one."""
    try:
        return _kept.popleft()
    except IndexError:
        return None

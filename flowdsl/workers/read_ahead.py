"""Reading ahead: a thread that reads a stream while the consumer, or a worker, is at its own work.

Only this thread touches what it reads: it begins the pass, iterates and closes it. It holds nothing
of the run, so that a run which is forgotten is collected, and ends it.
"""

from __future__ import annotations

import contextvars
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from flowdsl.elements.structure import nbytes_of
from flowdsl.errors import FORKED, FlowError
from flowdsl.nodes import Row
from flowdsl.resources.cancellation import cancelled_when

A = TypeVar("A")

_log = logging.getLogger(__name__)

SECONDS_TO_END = 1.0
"""How long the end of a run waits for a source that is busy; after that it is left alone."""

_SECONDS_AT_THE_END = 0.3
"""... and how long the end of the program does."""


class ReadAhead(Generic[A]):
    """The rows of a stream, read in a thread.

    At most ``most()`` of them wait to be taken, and no more than ``nbytes``; or as many as a group
    that is asked for needs. After them comes the error that ended the stream, if one did.
    """

    def __init__(
        self,
        title: str,
        begin: Callable[[], Iterator[Row[A]]],
        close: Callable[[], None],
        most: Callable[[], int],
        nbytes: int,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """Begin to read; ``begin``, and at the end ``close``, are called in the thread.

        ``wake`` is called from there when there is what a ``take`` asked for in vain.
        """
        self._reading = _Reading(title, begin, close, most, nbytes, wake)
        # Neither a forgotten reader nor the end of the program waits for what it reads.
        self._forgotten = weakref.finalize(self, self._reading.stop, _SECONDS_AT_THE_END)

    @property
    def nbytes(self) -> int:
        """About how many bytes wait to be taken."""
        return self._reading.nbytes

    @property
    def error(self) -> BaseException | None:
        """What ended the stream, once ``take`` has given all rows before it."""
        return self._reading.error

    def take(self, most: int, each: int = 1) -> list[Row[A]] | None:
        """The rows that are there, in whole groups of ``each``; None if there is no such group yet.

        ``most`` is the rows of some groups. At the end comes less than a group, or nothing.
        """
        return self._reading.take(most, each)

    def wait(self) -> None:
        """Wait until there are rows, or the end. Ctrl-C interrupts it."""
        self._reading.wait()

    def stop(self) -> None:
        """End it; a source that is busy with a row is given a second."""
        self._forgotten.detach()
        self._reading.stop(SECONDS_TO_END)


class _Reading(Generic[A]):
    """What the thread holds, without the reader, which can so be garbage-collected."""

    def __init__(
        self,
        title: str,
        begin: Callable[[], Iterator[Row[A]]],
        close: Callable[[], None],
        most: Callable[[], int],
        nbytes: int,
        wake: Callable[[], None] | None,
    ) -> None:
        self.error: BaseException | None = None
        self._title = title
        self._begin = begin
        self._close = close
        self._most = most
        self._most_bytes = nbytes
        self._wake = wake
        self._rows = deque[tuple[Row[A], int]]()
        self._read_bytes = self._taken_bytes = 0  # each is written by one thread alone
        self._over = False
        self._stopped = False
        self._missed = 0
        """How many rows have to be there for who asked in vain."""
        self._changed = threading.Condition()
        self._process = os.getpid()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._read,), name=f"{title}, read ahead", daemon=True
        )
        self._thread.start()

    @property
    def nbytes(self) -> int:
        return self._read_bytes - self._taken_bytes

    def take(self, most: int, each: int) -> list[Row[A]] | None:
        if os.getpid() != self._process:
            raise FlowError(FORKED)
        # The thread appends before it looks at what was missed, and this looks after it has said
        # so: whichever is first, the other sees it, and a row needs no lock.
        self._missed = each
        over, there = self._over, len(self._rows)
        if there < each and not over:
            if there:  # so few may be as many as there is room for, unless more are missed
                with self._changed:
                    self._changed.notify_all()
            return None
        self._missed = 0
        rows = list[Row[A]]()
        for _ in range(min(most, there if over else there - there % each)):
            row, size = self._rows.popleft()
            rows.append(row)
            self._taken_bytes += size
        with self._changed:
            self._changed.notify_all()
        return rows

    def wait(self) -> None:
        self._missed = 1
        with self._changed:
            self._changed.wait_for(lambda: self._rows or self._over)

    def stop(self, timeout: float) -> None:
        if os.getpid() != self._process:  # a fork has neither the thread nor what it reads
            return
        with self._changed:
            self._stopped = True
            self._wake = None
            self._changed.notify_all()
        if threading.current_thread() is self._thread:  # the garbage collector runs in any thread
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            _log.warning(
                "%s: its next element is still on its way; reading ends after it", self._title
            )

    # -- in the thread -----------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            with cancelled_when(lambda: self._stopped):
                self._read_all()
        except BaseException as error:  # even SystemExit: it must not look like the end of data
            self.error = error
        finally:
            try:
                self._close()
            except BaseException as error:
                self.error = self.error or error
            with self._changed:
                self._over = True
                self._tell()

    def _read_all(self) -> None:
        rows = map(self._sized, self._begin())
        while not self._stopped:
            try:
                # A name in this frame would hold a row longer than who takes it.
                self._rows.append(next(rows))
            except StopIteration:
                return
            if self._missed or not self._has_room():
                with self._changed:
                    self._tell()
                    self._changed.wait_for(self._has_room)

    def _sized(self, row: Row[A]) -> tuple[Row[A], int]:
        size = nbytes_of(row[1])
        self._read_bytes += size
        return row, size

    def _has_room(self) -> bool:
        few = len(self._rows) < self._most() and self.nbytes < self._most_bytes
        return few or len(self._rows) < max(1, self._missed) or self._stopped

    def _tell(self) -> None:
        if self._missed and (self._over or len(self._rows) >= self._missed):
            self._missed = 0
            if self._wake is not None:
                self._wake()
        self._changed.notify_all()

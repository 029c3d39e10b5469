"""Read-ahead: a thread that reads a stream while the consumer and the workers do other work.

The problem: the consumer's thread coordinates the workers, so a slow source would block it while
results wait. The naive way is a thread that fills a ``queue.Queue``. This has three faults. The
queue limits the number of rows, not their bytes. A thread blocked in ``put`` never ends if the
consumer stops early. And the thread's references keep a forgotten run alive forever.

The choice: only this thread begins, iterates and closes the stream, so generators are never used
from two threads. It refers to ``_Reading``, not to ``ReadAhead`` or the run: when those are
collected, a finalizer stops the thread. Rows are exchanged through a deque without a lock; the
condition variable is used only by a side that has to wait.
"""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Generic, TypeVar

from flowdsl.errors import FORKED, FlowError
from flowdsl.resources.cancellation import cancelled_when
from flowdsl.resources.limits import start_thread

A = TypeVar("A")


SECONDS_TO_END = 1.0
"""The time that the end of a run waits for a busy source, before it abandons the thread."""

_EXIT_TIMEOUT = 0.3
"""The seconds that the exit of the program waits for a busy source."""


class ReadAhead(Generic[A]):
    """The rows of a stream, read in a thread.

    At most ``max_rows()`` rows and ``nbytes`` bytes wait to be taken, unless a requested group
    needs more. If an error ended the stream, it is available after the last row.
    """

    def __init__(
        self,
        title: str,
        begin: Callable[[], Iterator[tuple[int, A]]],
        close: Callable[[], None],
        max_rows: Callable[[], int],
        size: Callable[[A], int],
        nbytes: int,
        wake: Callable[[], None] | None = None,
        on_full: Callable[[A], object] | None = None,
    ) -> None:
        """Start reading; ``begin``, and at the end ``close``, are called in the thread.

        ``size`` returns the bytes of an element. If ``take`` has returned None, the thread calls
        ``wake`` when the rows have arrived. Without room for a row, the thread waits; with
        ``on_full`` it removes the oldest row instead, and calls the function with its element.
        """
        self._reading = _Reading(title, begin, close, max_rows, size, nbytes, wake, on_full)
        # A collected reader and the end of the program do not wait for a busy source.
        self._finalizer = weakref.finalize(self, self._reading.stop, _EXIT_TIMEOUT)

    @property
    def nbytes(self) -> int:
        """The approximate number of bytes that wait to be taken."""
        return self._reading.nbytes

    @property
    def error(self) -> BaseException | None:
        """The error that ended the stream; raise it after ``take`` has returned all rows."""
        return self._reading.error

    def take(
        self, most: int, group_size: int = 1, most_bytes: float = inf
    ) -> list[tuple[int, A]] | None:
        """Return available rows in whole groups of ``group_size``; None if no group is complete.

        ``most``, the maximum number of rows, is a multiple of ``group_size``. No group follows the
        one with which the rows reach ``most_bytes``. Only at the end of the stream are the rows an
        incomplete group, or an empty list.
        """
        return self._reading.take(most, group_size, most_bytes)

    def wait(self) -> None:
        """Wait for a row or the end of the stream. Ctrl-C interrupts the wait."""
        self._reading.wait()

    def stop(self) -> None:
        """Stop reading; wait at most a second for a source that is busy."""
        if self._finalizer.detach() is not None:  # else it was stopped before
            self._reading.stop(SECONDS_TO_END)


class _Reading(Generic[A]):
    """The state of the thread, without the reader, so that the reader can be collected."""

    def __init__(
        self,
        title: str,
        begin: Callable[[], Iterator[tuple[int, A]]],
        close: Callable[[], None],
        max_rows: Callable[[], int],
        size: Callable[[A], int],
        nbytes: int,
        wake: Callable[[], None] | None,
        on_full: Callable[[A], object] | None,
    ) -> None:
        self.error: BaseException | None = None
        self._title = title
        self._begin = begin
        self._close = close
        self._max_rows = max_rows
        self._size = size
        self._most_bytes = nbytes
        self._wake = wake
        self._on_full = on_full
        self._rows = deque[tuple[tuple[int, A], int]]()
        # Each of these is written by only one thread.
        self._read_bytes = self._taken_bytes = self._removed_bytes = 0
        self._over = False
        """True if the stream has ended."""
        self._stopped = False
        """True if no further rows are to be read."""
        self._rows_awaited = 0
        """The number of rows that a waiting ``take`` needs; 0 if none is waiting."""
        self._changed = threading.Condition()
        self._process = os.getpid()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._read,), name=f"{title}, read ahead", daemon=True
        )
        start_thread(self._thread, f"{title}, which a thread reads ahead")

    @property
    def nbytes(self) -> int:
        return self._read_bytes - self._taken_bytes - self._removed_bytes

    def take(self, most: int, group_size: int, most_bytes: float) -> list[tuple[int, A]] | None:
        if os.getpid() != self._process:
            raise FlowError(FORKED)
        # The thread appends a row before it reads ``_rows_awaited``; this method writes
        # ``_rows_awaited`` before it counts the rows. In any interleaving one of them sees the
        # other's write, so no row needs a lock.
        self._rows_awaited = group_size
        over, count = self._over, len(self._rows)
        if count < group_size and not over:
            if count:  # the thread may wait for room, which ``_rows_awaited`` now extends
                with self._changed:
                    self._changed.notify_all()
            return None
        self._rows_awaited = 0
        rows = list[tuple[int, A]]()
        enough = self._taken_bytes + most_bytes
        available = count if over else count - count % group_size
        for _ in range(min(most, available)):
            try:
                row, size = self._rows.popleft()
            except IndexError:  # with `on_full`, the thread has just removed some
                break
            rows.append(row)
            self._taken_bytes += size
            if self._taken_bytes >= enough and not len(rows) % group_size:
                break
        with self._changed:
            self._changed.notify_all()
        return rows

    def wait(self) -> None:
        self._rows_awaited = 1
        with self._changed:
            self._changed.wait_for(lambda: self._rows or self._over)

    def stop(self, timeout: float) -> None:
        if os.getpid() != self._process:  # a fork has neither the thread nor its stream
            return
        with self._changed:
            self._stopped = True
            self._wake = None
            self._changed.notify_all()
        if threading.current_thread() is self._thread:  # called by the garbage collector
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            from flowdsl.resources.logs import logger  # here: not needed at import

            logger(__name__).warning(
                "%s: the source is still busy; its thread will stop after the current element",
                self._title,
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
                self._notify()

    def _read_all(self) -> None:
        rows = map(self._sized, self._begin())
        while not self._stopped:
            try:
                # A local variable would keep the row alive after the consumer has released it.
                self._rows.append(next(rows))
            except StopIteration:
                return
            if self._on_full is not None:
                self._make_room(self._on_full)
            if self._rows_awaited or not self._has_room():
                with self._changed:
                    self._notify()
                    self._changed.wait_for(self._has_room)

    def _sized(self, row: tuple[int, A]) -> tuple[tuple[int, A], int]:
        size = self._size(row[1])
        self._read_bytes += size
        return row, size

    def _make_room(self, on_full: Callable[[A], object]) -> None:
        while len(self._rows) > 1 and not self._has_room():
            try:
                row, size = self._rows.popleft()
            except IndexError:  # the consumer has just taken them
                return
            self._removed_bytes += size
            on_full(row[1])

    def _has_room(self) -> bool:
        below_limits = len(self._rows) < self._max_rows() and self.nbytes < self._most_bytes
        return below_limits or len(self._rows) < max(1, self._rows_awaited) or self._stopped

    def _notify(self) -> None:
        if self._rows_awaited and (self._over or len(self._rows) >= self._rows_awaited):
            self._rows_awaited = 0
            if self._wake is not None:
                self._wake()
        self._changed.notify_all()

"""The pump: a thread that moves one pass of a flow into a consumer's queue.

The problem: a training step takes n elements from a queue of its framework, while a thread fills
the queue from a flow. The naive way lets the step block in the framework's queue. This fails in
several ways: Ctrl-C does not interrupt a wait inside a framework; a step may reach the end of the
data after it has taken some of its elements; a failed flow looks like a slow one; and the thread's
references keep a forgotten pass alive.

The choice: the pump counts the queued and the taken elements, and all waiting is done here, in
Python. ``take(n)`` returns when n elements are in the queue, or raises before any is taken. The
thread alone owns the run. It refers to ``_Transfer``, not to ``Pump``: when the pump is collected,
a finalizer stops the thread. This module depends on no framework.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from flowdsl.errors import FlowError, InvalidFlow
from flowdsl.feeding.stall_report import activity_of
from flowdsl.nodes import checked_int
from flowdsl.resources.cancellation import cancelled_when
from flowdsl.resources.limits import start_thread
from flowdsl.resources.logs import logger

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run
    from flowdsl.statistics.run import RunStatistics

T = TypeVar("T")

_log = logger(__name__)

_RESUME_POINT_INTERVAL = 16
"""Elements between two resume points: above a filter, a resume computes at most this many again."""

_EXIT_TIMEOUT = 0.3
"""The seconds that the exit of the program, for example by Ctrl-C, waits for a busy flow."""

PATIENCE = 30.0
"""Seconds of waiting after which a warning describes what the flow is doing."""


class EndOfPass(Exception):
    """Raised when a pass has too few elements for another step; ``left`` is their number.

    If the consumer batches rows, ``rows`` is the number of further rows, too few for an element.
    """

    def __init__(self, left: int, rows: int = 0) -> None:
        further = f" and {rows} row(s)" if rows else ""
        super().__init__(f"end of the pass, {left} element(s){further} left")
        self.left, self.rows = left, rows


class Sink(ABC, Generic[T]):
    """The target of a pump: a consumer's queue of any kind.

    A sink must not refer to its pump or to the pump's owner: the thread refers to the sink, so
    neither would be collected before the end of the pass.
    """

    @abstractmethod
    def put(self, element: T, position: int) -> None:
        """Queue one element; ``position`` is its position in the pass, counted from 0.

        Called in the pump's thread, in the order of the pass. It may wait, if ``close`` ends the
        wait. An exception ends the pass like an error of the flow. It gets a note that names the
        element, unless it is a ``FlowError``, which names the element itself.
        """

    def close(self) -> None:
        """Close the queue: the pass has ended or was stopped; queued elements can still be taken.

        Called several times, from any thread, even while a ``put`` waits: that ``put`` must then
        raise an exception, of any class. A queue that never waits does not need this method.
        """


class Pump(Generic[T]):
    """Moves the elements of a run into a sink, at most ``capacity`` ahead of its consumer.

    The thread begins immediately and owns the run: it iterates and closes it. The consumer calls
    ``take(n)``, and then removes ``n`` elements from the sink. A pump may be used from several
    threads; it is stopped when it is garbage-collected, or when the program ends. ``name`` is the
    name of the thread and appears in errors. If a consumer waits for ``patience`` seconds, a
    warning describes what the flow is doing; further warnings follow after twice as long each.

    >>> from collections import deque
    >>> import flowdsl as fl
    >>> class Waiting(Sink[int]):
    ...     def __init__(self) -> None:
    ...         self.elements = deque[int]()
    ...
    ...     def put(self, element: int, position: int) -> None:
    ...         self.elements.append(element)
    >>> flow, waiting = fl.from_range(5).map(lambda i: i * i), Waiting()
    >>> with Pump(iter(flow), waiting, capacity=2) as pump:
    ...     pump.take(2)
    ...     taken = [waiting.elements.popleft() for _ in range(2)]
    ...     state = pump.state_dict()
    >>> taken, list(flow.resume(state))
    ([0, 1], [4, 9, 16])

    Raises:
        InvalidFlow: ``capacity`` is not an int of at least 1.
    """

    def __init__(
        self,
        run: Run[T],
        sink: Sink[T],
        capacity: int = 50,
        *,
        name: str = "Pump",
        patience: float = PATIENCE,
    ) -> None:
        self._name = name
        self._capacity = checked_int(f"{name}: capacity", capacity, 1)
        self._transfer = _Transfer(run, sink, self._capacity, name, patience)
        # A collected pump and the end of the program stop the run's processes.
        self._finalizer = weakref.finalize(self, self._transfer.stop, _EXIT_TIMEOUT)

    @property
    def fill(self) -> int:
        """The number of elements that are queued and not taken."""
        return self._transfer.fill

    @property
    def position(self) -> int:
        """The position in the pass after the last element that was taken."""
        return self._transfer.position

    @property
    def taken(self) -> int:
        """The number of elements that were taken."""
        return self._transfer.taken

    @property
    def waited(self) -> float:
        """The seconds that the consumer has waited in ``take``."""
        return self._transfer.waited

    def statistics(self) -> RunStatistics:
        """Return the statistics of the run so far; safe while the thread is running."""
        return self._transfer.statistics()

    def take(self, n: int = 1) -> None:
        """Wait until ``n`` elements are queued, and count them as taken: all of them, or none.

        Ctrl-C interrupts the wait.

        Raises:
            EndOfPass: Fewer than ``n`` elements are left.
            FlowError: The pump was stopped; or the flow failed, and fewer than ``n`` elements
                before the failure are left. Any error of the flow is raised unchanged, with a note
                if some elements were left.
            InvalidFlow: ``n`` is not an int of at least 1, or more than ``capacity``.
        """
        n = checked_int(f"{self._name}: n", n, 1)
        if n > self._capacity:
            raise InvalidFlow(
                f"{self._name}: capacity={self._capacity} is too small for a step of {n} elements; "
                f"give capacity={n} or more"
            )
        try:
            self._transfer.take(n)
        except Exception:
            # The pass is over, so there is nothing to stop. The finalizer refers to the error,
            # whose traceback refers to this pump: it would live until the program ends.
            self._finalizer.detach()
            raise

    def state_dict(self, behind: int = 0) -> dict[str, object]:
        """Return the state after the last element that was taken, for ``flow.resume``.

        With ``behind`` it is the state this many elements earlier, for a consumer that takes
        elements ahead of their use.

        The call waits for at most one element, and works at any time, also after the end.

        Raises:
            NotResumable: A position does not identify the elements that this flow delivered.
        """
        return self._transfer.state_dict(behind)

    def stop(self, timeout: float = 1.0) -> None:
        """End the pass; wait at most ``timeout`` seconds for a flow that is computing an element.

        If that is not enough, a warning is logged, and the thread ends after the element.
        """
        self._finalizer.detach()
        self._transfer.stop(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Transfer(Generic[T]):
    """The state of the thread, without the pump, so that the pump can be garbage-collected."""

    def __init__(
        self, run: Run[T], sink: Sink[T], capacity: int, name: str, patience: float
    ) -> None:
        self._run = run
        self._sink = sink
        self._capacity = capacity
        self._name = name
        self._patience = patience
        self._start = run.position
        self._changed = threading.Condition()  # guards the fields below
        self._queued = 0
        self._taken = 0
        self.waited = 0.0
        self._over = False
        """True after the last element, or after an error."""
        self._taken_to_the_end = False
        """True if the consumer has seen the end: the remaining elements are too few for a step."""
        self._error: Exception | None = None
        self._stopped = False
        # A run belongs to one thread at a time. Locks are not fair: the pump's thread could lock
        # the run again and again while another thread waits. So both first pass a turnstile, which
        # a waiting thread keeps locked until it has the run.
        self._owner = threading.Lock()
        self._turnstile = threading.Lock()
        self._process = os.getpid()
        self._acknowledges = run.acknowledges
        if self._acknowledges:  # an element is delivered when it is taken, not when it is queued
            run.commit_explicitly()
        self._thread = threading.Thread(target=self._move_all, name=name, daemon=True)
        start_thread(self._thread, name)

    @property
    def fill(self) -> int:
        with self._changed:
            return self._queued - self._taken

    def statistics(self) -> RunStatistics:
        return self._run.statistics()

    @property
    def position(self) -> int:
        with self._changed:
            return self._start + self._taken

    @property
    def taken(self) -> int:
        with self._changed:
            return self._taken

    def take(self, n: int) -> None:
        self._refuse_fork()
        with self._changed:
            self._wait_until(lambda: self.fill >= n or self._over or self._stopped)
            left = self.fill
            if left >= n and not self._stopped:
                self._taken += n
                self._changed.notify_all()
                return
        if self._stopped:  # a stopped pass must not look complete
            raise FlowError(f"{self._name}: this pass was stopped; begin another one")
        if self._error is None:
            with self._changed:
                self._taken_to_the_end = True
                self._changed.notify_all()
            raise EndOfPass(left)
        note = f"{left} element(s) before it were not used: a step takes {n}"
        if left and note not in getattr(self._error, "__notes__", ()):
            self._error.add_note(note)
        raise self._error

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        began, patience = monotonic(), self._patience
        try:
            while not self._changed.wait_for(ready, patience):
                _log.warning(
                    "%s: a step has waited for %.3g s, and element %d of the pass has not arrived: "
                    "%s",
                    *(self._name, monotonic() - began, self._start + self._queued),
                    activity_of(self._run, self._thread),
                )
                patience *= 2
        finally:
            self.waited += monotonic() - began

    def state_dict(self, behind: int) -> dict[str, object]:
        self._refuse_fork()
        with self._turnstile, self._owner:
            return self._run.state_dict(self._start + self._taken - behind)

    def stop(self, timeout: float = 1.0) -> None:
        if os.getpid() != self._process:  # a fork has neither the thread nor the run
            return
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._sink.close()
        if threading.current_thread() is self._thread:  # the garbage collector may run anywhere
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            _log.warning(
                "%s: the flow is still computing an element; the pass ends when it is done",
                self._name,
            )

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise FlowError(
                f"{self._name}: this pass belongs to the process that began it, and this process "
                f"is a fork of that one; begin a new pass here"
            )

    # -- in the thread -----------------------------------------------------------------------------

    def _move_all(self) -> None:
        error: BaseException | None = None
        try:
            with ExitStack() as cleanup:
                cleanup.callback(self._sink.close)
                cleanup.push(self._close_run)
                self._move_until_stopped()
        except BaseException as failed:  # even SystemExit: it must not look like the end of data
            if self._stopped:
                _log.error("%s: the pass did not close cleanly", self._name, exc_info=failed)
            error = failed
        self._finish(error)

    def _move_until_stopped(self) -> None:
        try:
            with cancelled_when(lambda: self._stopped):
                while self._has_room() and self._move_one():
                    pass
                if self._acknowledges:
                    self._await_consumer()
        except BaseException:
            if not self._stopped:  # ignore errors of a stopped pass
                raise

    def _has_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self.fill < self._capacity or self._stopped)
            return not self._stopped

    def _move_one(self) -> bool:
        """Move the next element; return False at the end.

        Only this short-lived frame refers to the element.
        """
        try:
            element = self._next()
        except StopIteration:
            return False
        self._put(element, self._start + self._queued)
        with self._changed:
            self._queued += 1
            self._changed.notify_all()
        return True

    def _next(self) -> T:
        with self._turnstile:
            pass
        with self._owner:
            if self._queued % _RESUME_POINT_INTERVAL == 0:
                # Keep resume points for states up to ``capacity`` elements before the last one
                # taken: a consumer may take elements ahead of their use.
                self._run.mark(self._start + max(0, self._taken - self._capacity))
            if self._acknowledges:
                self._run.commit(self._start + self._taken)
            return next(self._run)

    def _await_consumer(self) -> None:
        """Wait at the end of the pass until all elements are taken: then they are acknowledged."""
        self._sink.close()
        with self._changed:
            self._over = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._stopped or self._taken_to_the_end or not self._queued - self._taken
            )

    def _put(self, element: T, position: int) -> None:
        try:
            self._sink.put(element, position)
        except FlowError:  # a FlowError names its element already
            raise
        except BaseException as error:
            error.add_note(f"{self._name}: raised as element {position} was put into the queue")
            raise

    def _close_run(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._owner:
            if self._acknowledges and error is None:
                used = self._queued if self._taken_to_the_end else self._taken
                self._run.commit(self._start + used)
            if error is None:
                self._run.close(keep_workers=True)
            else:
                self._run.__exit__(kind, error, trace)

    def _finish(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, Exception):
            quitting, error = error, FlowError(f"{self._name}: the pass ended with {error!r}")
            error.__cause__ = quitting
        with self._changed:
            self._over, self._error = True, error
            self._changed.notify_all()

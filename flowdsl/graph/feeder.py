"""The thread that moves one pass of a flow into a TensorFlow queue.

It owns the run: makes it, iterates it, closes it. What it has queued and what steps have taken is
counted here, and waiting for either is done here, in Python: inside TensorFlow a wait could not be
interrupted by Ctrl-C, and a step that met the end of the data would be torn.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import tensorflow as tf

from flowdsl.errors import FlowError
from flowdsl.graph.layout import Layout, to_arrays
from flowdsl.graph.source import EndOfPass, State

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run

_log = logging.getLogger(__name__)

_ELEMENTS_A_MARK = 16
"""So many may have to be made again where a state of this pass is resumed, above a filter."""


class Feeder:
    """One pass: begun in a thread of its own, taken from by the training loop, then stopped."""

    def __init__(
        self,
        queue: tf.queue.QueueBase,
        capacity: int,
        begin: Callable[[], Run[object]],
        layout: Layout,
    ) -> None:
        self.queue = queue
        self._capacity = capacity
        self._begin = begin
        self._layout = layout
        self._changed = threading.Condition()  # what follows is read and written under it
        self._run: Run[object] | None = None
        self._start = 0
        self._queued = 0
        self._taken = 0
        self._over = False
        self._error: Exception | None = None
        self._stopped = False
        # A run belongs to one thread at a time. The second lock is a turnstile: whoever waits for
        # the run is next, however fast the thread comes back for it.
        self._owner = threading.Lock()
        self._turnstile = threading.Lock()
        self._thread = threading.Thread(target=self._feed, name="QueueInput", daemon=True)
        self._thread.start()

    @property
    def fill(self) -> int:
        """How many elements wait for a step."""
        return self._queued - self._taken

    def take(self, n: int) -> None:
        """Wait until ``n`` elements are queued, and count them as taken."""
        with self._changed:
            self._changed.wait_for(lambda: self.fill >= n or self._over)
            left = self.fill
            if left >= n:
                self._taken += n
                self._changed.notify_all()
                return
        if self._error is None:
            raise EndOfPass(left)
        note = f"{left} element(s) before it were left: a step takes {n}"
        if left and note not in getattr(self._error, "__notes__", ()):
            self._error.add_note(note)
        raise self._error

    def state_dict(self) -> State:
        """The position after the last element that was taken; waits for at most one element."""
        with self._changed:
            self._changed.wait_for(lambda: self._run is not None or self._over)
        if self._run is None:
            raise self._error or FlowError("QueueInput: the pass ended before it began")
        with self._turnstile, self._owner:
            return self._run.state_dict(self._start + self._taken)

    def stop(self, timeout: float = 1.0) -> None:
        """End the pass. A flow that is busy making an element is given ``timeout`` seconds."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        with suppress(tf.errors.CancelledError):  # it is closed already
            self.queue.close(cancel_pending_enqueues=True)
        if threading.current_thread() is self._thread:  # the garbage collector runs anywhere
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            _log.warning("QueueInput: the flow is busy; its pass ends after the present element")

    # -- in the thread -----------------------------------------------------------------------------

    def _feed(self) -> None:
        try:
            with self._begin() as run:
                self._publish(run)
                self._finish(self._pump(run))
                with self._changed:  # until then the run may be asked for its state
                    self._changed.wait_for(lambda: self._stopped)
        except BaseException as error:  # of beginning or closing the run
            if self._stopped:
                _log.error("QueueInput: the pass did not close cleanly", exc_info=error)
            self._finish(error)

    def _publish(self, run: Run[object]) -> None:
        with self._changed:
            self._run, self._start = run, run.position
            self._changed.notify_all()

    def _pump(self, run: Run[object]) -> BaseException | None:
        """Move elements until the pass ends or is stopped; the error that ended it, if any."""
        try:
            while self._has_room():
                self._enqueue(self._next(run))  # no names: they would hold memory of the flow
        except StopIteration:
            return None
        except BaseException as error:  # even SystemExit: it must not pass for the end of the data
            return None if self._stopped else error
        return None

    def _has_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self.fill < self._capacity or self._stopped)
            return not self._stopped

    def _next(self, run: Run[object]) -> object:
        with self._turnstile:
            self._owner.acquire()
        try:
            if self._queued % _ELEMENTS_A_MARK == 0:
                run.mark(self._start + self._taken)
            return next(run)
        finally:
            self._owner.release()

    def _enqueue(self, element: object) -> None:
        arrays = to_arrays(self._layout, element, self._start + self._queued)
        tf.raw_ops.QueueEnqueueV2(handle=self.queue.queue_ref, components=arrays)
        with self._changed:
            self._queued += 1
            self._changed.notify_all()

    def _finish(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, Exception):
            quitting, error = error, FlowError(f"QueueInput: the flow raised {error!r}")
            error.__cause__ = quitting
        with suppress(tf.errors.CancelledError):  # closed by stop()
            self.queue.close()  # what is queued can still be taken
        with self._changed:
            self._over, self._error = True, self._error or error
            self._changed.notify_all()

"""Queues that are filled by threads, and the context in which they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from itertools import count
from time import monotonic
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from flowdsl.errors import FlowError
from flowdsl.resources.limits import start_thread
from flowdsl.tensorflow.interrupts import on_ctrl_c
from flowdsl.tensorflow.queues.lazy_tensors import LazyTensor, Structure, flat

_numbers = count()
_used: ContextVar[list[FilledQueue] | None] = ContextVar("_used", default=None)
"""The queues from which a function dequeues while it is traced."""

Fill: TypeAlias = Callable[[], "tf.Tensor | None"]
"""Enqueues the values of one evaluation.

It returns a bool, False if it has enqueued nothing; or None if it always enqueues something.
"""

_FILLS_PER_CALL = 100
"""The number of times a thread fills its queue in one call; returning to Python takes long."""

MAX_CAPACITY = 2**31
"""The limit on the capacity of a queue, which TensorFlow counts as int32."""

_SECONDS_TO_END = 5.0
_SECONDS_AFTER_CTRL_C = 0.3


class FilledQueue:
    """A queue, and the threads that fill it.

    It runs once, within ``running``. Dequeuing after its end, or after an error in a thread that
    fills it, raises ``tf.errors.OutOfRangeError``; ``running`` raises the error itself.
    """

    def __init__(
        self,
        queue: tf.queue.QueueBase,
        fills: Sequence[Fill],
        name: str,
        *,
        capacity: int,
        least: int = 0,
        summary_name: str | None = None,
        cancel_op: Callable[[], object] | None = None,
    ) -> None:
        """Each of ``fills`` enqueues something, in its own thread.

        ``least`` is the number of elements that stay in the queue until its end.
        """
        self.queue = queue
        self.name = name
        self.capacity = capacity
        self._least = least
        self.summary_name = summary_name
        self._cancel_op = cancel_op
        self._fills = [_Traced(fill, queue) for fill in fills]
        self._threads: list[threading.Thread] = []
        with tf.init_scope(), tf.device("/cpu:0"):
            # A queue, as checkpoints would store a variable that steps read.
            self._begun = tf.queue.FIFOQueue(1, [tf.bool], [[]])
            """It has an element once the threads may be started."""
        self._lock = threading.Lock()
        self._alive = len(self._fills)
        """The number of threads that still fill the queue."""
        self._stopped = False
        self.error: Exception | None = None
        """The error that ended the queue, if there was one."""

    @property
    def queue_ref(self) -> tf.Tensor:
        """The queue's handle, for operations that dequeue by themselves, such as readers."""
        self._note_use()
        return self.queue.queue_ref

    @property
    def dtypes(self) -> list[tf.DType]:
        return self.queue.dtypes

    def dequeue(self) -> Any:
        """Dequeue one element: a tensor, or a list of tensors.

        Raises:
            FlowError: The threads that fill it have not been started, so it would wait forever.
        """
        with self._reading():
            return self.queue.dequeue()

    def dequeue_many(self, n: int) -> Any:
        """Dequeue ``n`` elements, stacked."""
        with self._reading():
            return self.queue.dequeue_many(n)

    def dequeue_up_to(self, n: int) -> Any:
        """Dequeue ``n`` elements, or as many as are left at the end of the queue."""
        with self._reading():
            return self.queue.dequeue_up_to(n)

    def size(self) -> tf.Tensor:
        """Return the number of elements in the queue."""
        return self.queue.size()

    def close(self, cancel_pending_enqueues: bool = False) -> None:
        """Close the queue: nothing is enqueued any more, and its elements can still be dequeued."""
        self.queue.close(cancel_pending_enqueues=cancel_pending_enqueues)

    def fraction_full(self) -> float:
        """Return the share of the capacity that is filled, not counting what stays in the queue."""
        return max(0, int(self.size()) - self._least) / (self.capacity - self._least)

    def record_use(self) -> None:
        """Record that the function being traced dequeues from this queue.

        Raises:
            FlowError: No function is being traced, and nothing fills the queue.
        """
        if not self._note_use() and not self._threads and tf.executing_eagerly():
            raise FlowError(self._nothing_fills_it)

    def _note_use(self) -> bool:
        """Record a use, if uses are recorded; return whether they are."""
        used = _used.get()
        if used is not None and self not in used:
            used.append(self)
        return used is not None

    def _reading(self) -> AbstractContextManager[None]:
        """Return the context of an operation that dequeues.

        A ``tf.function`` may be traced before anything fills the queue, and called at any time. So
        the operation itself checks first that the queue has been filled.
        """
        self.record_use()
        if tf.executing_eagerly() or _used.get() is not None:  # a thread reads filled queues only
            return nullcontext()
        begun = self._begun.size() > 0
        return tf.control_dependencies([tf.debugging.Assert(begun, [self._nothing_fills_it])])

    @property
    def _nothing_fills_it(self) -> str:
        return (
            f"{self.name}: nothing fills this queue yet, so reading from it would wait forever; "
            f"read it within a block: with queues.running(...):"
        )

    # -- its threads -------------------------------------------------------------------------------

    def sources(self) -> list[FilledQueue]:
        """Return the queues from which this queue is filled."""
        return [queue for fill in self._fills for queue in fill.used]

    def require_new(self) -> None:
        """Raise FlowError if the queue is running, or has run before."""
        if self._threads and not self._stopped:
            raise FlowError(
                f"{self.name}: it is running already, in another block of queues.running: pass the "
                f"tensors of both to one: with queues.running(a, b):"
            )
        if self._threads:
            raise FlowError(f"{self.name}: it has run already; a queue runs once: create a new one")

    def begin(self) -> None:
        """Allow reading, before any thread of the pipeline starts."""
        self._begun.enqueue(True)

    def start(self) -> None:
        """Start the threads."""
        for k, fill in enumerate(self._fills):
            name = f"{self.name}_{k}"
            thread = threading.Thread(target=self._fill, args=(fill,), name=name, daemon=True)
            start_thread(thread, self.name)
            self._threads.append(thread)

    def stop(self) -> None:
        """Close the queue, so that its threads end; a second call does nothing."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self.close(cancel_pending_enqueues=True)
        if self._cancel_op is not None:
            self._cancel_op()

    def join(self, until: float) -> None:
        """Wait for the threads, at most up to a time of the monotonic clock."""
        for thread in self._threads:
            thread.join(max(0, until - monotonic()))

    def _fill(self, fill: _Traced) -> None:
        try:
            while not self._stopped:
                fill()
        except tf.errors.OutOfRangeError:  # its source has ended
            pass
        except tf.errors.CancelledError:  # it was closed meanwhile
            pass
        except Exception as error:
            with self._lock:
                self.error = self.error or error
            self.close(cancel_pending_enqueues=True)
        with self._lock:
            self._alive -= 1
            if self._alive == 0:  # no thread enqueues, so closing does not wait
                with suppress(tf.errors.CancelledError):  # already closed
                    self.close()


class _Traced:
    """A traced loop over a function that fills a queue, and the queues from which it dequeues."""

    def __init__(self, fill: Fill, queue: tf.queue.QueueBase) -> None:
        def fill_once(k: tf.Tensor) -> tuple[tf.Tensor]:
            enqueued = fill()
            if enqueued is None:
                return (k + 1,)
            # An evaluation that enqueues nothing does not notice that the queue is closed.
            return (tf.cond(enqueued, lambda: k + 1, lambda: next_if_open(k)),)

        def next_if_open(k: tf.Tensor) -> tf.Tensor:
            return tf.where(queue.is_closed(), _FILLS_PER_CALL, k + 1)

        def fill_repeatedly() -> object:
            begin = (tf.constant(0),)
            return tf.while_loop(
                lambda k: k < _FILLS_PER_CALL, fill_once, begin, parallel_iterations=1
            )

        self._step = tf.function(autograph=False)(fill_repeatedly)
        with recording_uses() as self.used:
            self._call = self._step.get_concrete_function()

    def __call__(self) -> object:
        return self._call()


@contextmanager
def running(*tensors: Structure | FilledQueue) -> Iterator[None]:
    """Run the threads that fill the queues of these tensors, until the end of the block.

    The queues from which they are filled run too. At the end all are stopped. Ctrl-C stops them at
    once, even while TensorFlow waits in the block.

    Raises:
        Exception: The error that ended a thread, also if it appears as
            ``tf.errors.OutOfRangeError`` in the block.

    >>> from flowdsl.tensorflow.inputs import queues
    >>> numbers = queues.batch([queues.range_input_producer(6, num_epochs=1)], batch_size=3)
    >>> with queues.running(numbers):
    ...     sorted(n for _ in range(2) for n in queues.evaluate(numbers).numpy().tolist())
    [0, 1, 2, 3, 4, 5]

    Source: ``tf.train.start_queue_runners`` and ``Coordinator`` of TensorFlow 1.
    """
    needed = _needed(tensors)
    started: list[FilledQueue] = []
    try:
        for queue in needed:
            queue.require_new()
        for queue in needed:
            queue.begin()
        for queue in needed:
            queue.start()
            started.append(queue)
        with on_ctrl_c(lambda: _close(started)):
            yield
    except KeyboardInterrupt:
        _stop(started, _SECONDS_AFTER_CTRL_C)
        raise
    except tf.errors.OpError as ended:
        _stop(started)
        if (error := _first_error(started)) is not None:
            raise error from ended
        raise
    except BaseException:
        _stop(started)
        raise
    _stop(started)
    if (error := _first_error(started)) is not None:
        raise error


def _first_error(queues: Sequence[FilledQueue]) -> Exception | None:
    """Return the error of the queue nearest to the beginning of the pipeline, if there is one."""
    return next((q.error for q in reversed(queues) if q.error is not None), None)


@contextmanager
def recording_uses() -> Iterator[list[FilledQueue]]:
    """Yield the list of queues from which functions dequeue that are traced in the block."""
    used: list[FilledQueue] = []
    token = _used.set(used)
    try:
        yield used
    finally:
        _used.reset(token)


def with_sources(queues: Sequence[FilledQueue]) -> list[FilledQueue]:
    """Return these queues and those that fill them, nearest to the consumer first."""
    found: list[FilledQueue] = []
    to_visit = [*queues]
    while to_visit:
        queue = to_visit.pop()
        if queue not in found:
            found.append(queue)
            to_visit += queue.sources()
    return found


def _needed(tensors: tuple[Structure, ...]) -> list[FilledQueue]:
    return with_sources([queue for tensor in tensors for queue in _queues_of(tensor)])


def _queues_of(tensors: Structure) -> list[FilledQueue]:
    with recording_uses() as used:
        for tensor in [tensors] if isinstance(tensors, FilledQueue) else flat(tensors):
            if isinstance(tensor, FilledQueue):
                tensor.record_use()
            elif isinstance(tensor, LazyTensor):
                tf.function(autograph=False)(tensor.value).get_concrete_function()
            elif not isinstance(tensor, (tf.Tensor, tf.Variable)):
                raise TypeError(
                    f"running: it takes queues and tensors that depend on them, got {tensor!r}"
                )
    return used


def _stop(queues: Sequence[FilledQueue], seconds: float = _SECONDS_TO_END) -> None:
    """Stop the queues, and wait at most ``seconds`` for their threads."""
    _close(queues)
    until = monotonic() + seconds
    for queue in queues:
        queue.join(until)


def _close(queues: Sequence[FilledQueue]) -> None:
    for queue in queues:
        with suppress(tf.errors.CancelledError):
            queue.stop()


def unique(name: str | None, default: str) -> str:
    """Return a name for a queue and its threads."""
    return name or f"{default}_{next(_numbers)}"


def any_rows(value: tf.Tensor) -> tf.Tensor | None:
    """Return whether a tensor has rows; None if its shape says that it has."""
    known = value.shape.rank is not None and value.shape[0]
    return None if known else tf.shape(value)[0] > 0


def checked_count(name: str, value: object, minimum: int = 1, below: int | None = None) -> int:
    """Return an argument that must be an int of at least ``minimum``, and less than ``below``.

    Raises:
        TypeError: It is not an int.
        ValueError: It is outside this range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if below is not None and value >= below:
        raise ValueError(f"{name} must be less than {below:,}, got {value}")
    return int(value)


def checked_seed(name: str, value: object) -> None:
    """Check a seed: an int or None; raises TypeError."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
        raise TypeError(f"{name} must be an int or None, got {value!r}")


def refuse_shared(name: str, value: str | None) -> None:
    """Refuse to share a queue with other processes; raises ValueError."""
    if value is not None:
        raise ValueError(
            f"{name}: queues cannot be shared with other processes; leave it out, and send rows to "
            f"other machines with flow.send_zmq"
        )

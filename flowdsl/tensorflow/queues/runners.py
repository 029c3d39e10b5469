"""Queues that threads of ours fill, and when these run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from time import monotonic
from typing import Any

import tensorflow as tf

from flowdsl.errors import FlowError
from flowdsl.tensorflow.queues.interrupts import on_ctrl_c
from flowdsl.tensorflow.queues.lazy_tensors import LazyTensor, Structure, flat

_numbers = count()
_used: ContextVar[list[FilledQueue] | None] = ContextVar("_used", default=None)
"""The queues that are taken from while a function is traced."""

_TURNS = 100
"""How often a thread fills its queue before it comes back to Python, which takes long."""

_SECONDS_TO_END = 5.0
_SECONDS_AFTER_CTRL_C = 0.3


class FilledQueue:
    """A queue, and the threads that fill it.

    It begins with ``running`` and ends with it, for good. What is taken after its end, or after an
    error of what fills it, raises ``tf.errors.OutOfRangeError``; ``running`` raises that error.
    """

    def __init__(
        self,
        queue: tf.queue.QueueBase,
        fills: Sequence[Callable[[], object]],
        name: str,
        *,
        capacity: int,
        summary_name: str | None = None,
        cancel_op: Callable[[], object] | None = None,
    ) -> None:
        """Each of ``fills`` puts something into the queue, in a thread of its own."""
        self.queue = queue
        self.name = name
        self.capacity = capacity
        self.summary_name = summary_name
        self._cancel_op = cancel_op
        self._fills = [_Traced(fill) for fill in fills]
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._alive = len(self._fills)
        self._stopped = False
        self.error: Exception | None = None
        """What ended it, if it was an error."""

    @property
    def queue_ref(self) -> tf.Tensor:
        return self.queue.queue_ref

    @property
    def dtypes(self) -> list[tf.DType]:
        return self.queue.dtypes

    def dequeue(self) -> Any:
        """The next of its elements: a tensor, or a list of them."""
        self.note()
        return self.queue.dequeue()

    def dequeue_many(self, n: int) -> Any:
        """The next ``n`` elements, stacked."""
        self.note()
        return self.queue.dequeue_many(n)

    def dequeue_up_to(self, n: int) -> Any:
        """The next ``n`` elements, or as many as there are at its end."""
        self.note()
        return self.queue.dequeue_up_to(n)

    def size(self) -> tf.Tensor:
        """How many elements are in it."""
        return self.queue.size()

    def close(self, cancel_pending_enqueues: bool = False) -> None:
        """End it: nothing is put in any more, and what is in it can still be taken."""
        self.queue.close(cancel_pending_enqueues=cancel_pending_enqueues)

    def fraction_full(self) -> float:
        """The share of its capacity that is filled."""
        return float(self.size()) / self.capacity

    def note(self) -> None:
        """Tell whoever traces a function that it takes from this queue."""
        used = _used.get()
        if used is not None and self not in used:
            used.append(self)

    # -- its threads -------------------------------------------------------------------------------

    def sources(self) -> list[FilledQueue]:
        """The queues that it is filled from."""
        return [queue for fill in self._fills for queue in fill.used]

    def start(self) -> None:
        """Begin to fill it; raises FlowError if it has run before."""
        if self._threads:
            raise FlowError(f"{self.name}: it has run already; a queue runs once, so make it anew")
        self._threads = [
            threading.Thread(target=self._fill, args=(fill,), name=f"{self.name}_{k}", daemon=True)
            for k, fill in enumerate(self._fills)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self.close(cancel_pending_enqueues=True)
        if self._cancel_op is not None:
            self._cancel_op()

    def join(self, until: float) -> None:
        for thread in self._threads:
            thread.join(max(0, until - monotonic()))

    def _fill(self, fill: _Traced) -> None:
        try:
            while not self._stopped:
                fill()
        except tf.errors.OutOfRangeError:  # what it is filled from has ended
            pass
        except tf.errors.CancelledError:  # it was closed meanwhile
            pass
        except Exception as error:
            with self._lock:
                self.error = self.error or error
            self.close(cancel_pending_enqueues=True)
        with self._lock:
            self._alive -= 1
            if self._alive == 0:  # nobody puts anything in, so closing does not wait
                with suppress(tf.errors.CancelledError):  # it is closed already
                    self.close()


class _Traced:
    """A function that fills a queue, many times in a call, and the queues that it takes from."""

    def __init__(self, fill: Callable[[], object]) -> None:
        def turn(k: tf.Tensor) -> tuple[tf.Tensor]:
            fill()
            return (k + 1,)

        def turns() -> object:
            begin = (tf.constant(0),)
            return tf.while_loop(lambda k: k < _TURNS, turn, begin, parallel_iterations=1)

        self._step = tf.function(autograph=False)(turns)
        with noting() as self.used:
            self._call = self._step.get_concrete_function()

    def __call__(self) -> object:
        return self._call()


@contextmanager
def running(*tensors: Structure | FilledQueue) -> Iterator[None]:
    """Run the threads that fill the queues of these tensors, up to the end of the block.

    With them run those of the queues that they are filled from. At the end all are stopped, and
    Ctrl-C stops them at once, whatever TensorFlow waits for in the block.

    Raises:
        Exception: What ended one of the threads, if it was an error: also where that shows as
            ``tf.errors.OutOfRangeError`` in the block.

    >>> from flowdsl.tensorflow.inputs import queues
    >>> numbers = queues.batch([queues.range_input_producer(6, num_epochs=1)], batch_size=3)
    >>> with queues.running(numbers):
    ...     sorted(n for _ in range(2) for n in queues.evaluate(numbers).numpy().tolist())
    [0, 1, 2, 3, 4, 5]

    Source: ``tf.train.start_queue_runners`` and ``Coordinator`` of TensorFlow 1.
    """
    found = _needed(tensors)
    started: list[FilledQueue] = []
    try:
        for queue in found:
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
    """What ended the queue nearest to the beginning of a pipeline, if anything did."""
    return next((q.error for q in reversed(queues) if q.error is not None), None)


@contextmanager
def noting() -> Iterator[list[FilledQueue]]:
    """The queues that are taken from by what is traced in the block."""
    used: list[FilledQueue] = []
    token = _used.set(used)
    try:
        yield used
    finally:
        _used.reset(token)


def with_sources(queues: Sequence[FilledQueue]) -> list[FilledQueue]:
    """These queues, and those that they are filled from, the last of them first."""
    found: list[FilledQueue] = []
    ahead = [*queues]
    while ahead:
        queue = ahead.pop()
        if queue not in found:
            found.append(queue)
            ahead += queue.sources()
    return found


def _needed(tensors: tuple[Structure, ...]) -> list[FilledQueue]:
    return with_sources([queue for one in tensors for queue in _queues_of(one)])


def _queues_of(tensors: Structure) -> list[FilledQueue]:
    with noting() as used:
        for one in [tensors] if isinstance(tensors, FilledQueue) else flat(tensors):
            if isinstance(one, FilledQueue):
                one.note()
            elif isinstance(one, LazyTensor):
                tf.function(autograph=False)(one.value).get_concrete_function()
    return used


def _stop(queues: Sequence[FilledQueue], seconds: float = _SECONDS_TO_END) -> None:
    """End the queues, and wait so long for their threads, one of which may be anywhere."""
    _close(queues)
    until = monotonic() + seconds
    for queue in queues:
        queue.join(until)


def _close(queues: Sequence[FilledQueue]) -> None:
    for queue in queues:
        with suppress(tf.errors.CancelledError):
            queue.stop()


def unique(name: str | None, default: str) -> str:
    """A name for a queue and its threads."""
    return name or f"{default}_{next(_numbers)}"

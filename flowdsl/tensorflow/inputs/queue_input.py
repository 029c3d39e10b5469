"""Input sources that feed a step through a TensorFlow queue."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from flowdsl.errors import FlowError, InvalidArgument, NotResumable, SpecMismatch
from flowdsl.feeding.pump import PATIENCE, EndOfPass, Pump, Sink
from flowdsl.flow import Flow
from flowdsl.nodes import checked_choice, checked_int
from flowdsl.tensorflow.inputs.aligned import AlignedCopies
from flowdsl.tensorflow.inputs.signature import Signature, signature_of
from flowdsl.tensorflow.inputs.source import InputSource, State, Taken, epoch_and_run, taken_of
from flowdsl.tensorflow.queues.runners import MAX_CAPACITY

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run
    from flowdsl.statistics.run import RunStatistics


class QueuedInput(InputSource):
    """The base of input sources with a queue, which a pump thread fills during a pass.

    The queue's handle is an argument of the step, so ``reset`` begins a pass without retracing.
    When the data fails, the elements before the error are delivered; then ``next_args`` raises the
    error.
    """

    patience: float = PATIENCE
    """Seconds that a step waits before a log warning reports what the flow is doing."""

    def __init__(
        self, signature: Signature, queue: tf.queue.QueueBase | None, capacity: int
    ) -> None:
        name = type(self).__name__
        self.capacity = checked_int(f"{name}: capacity", capacity, 1, MAX_CAPACITY)
        self._signature = signature
        self._user_queue = None if queue is None else _fitting(name, queue, signature)
        self._epoch = 0
        self._waited = 0.0
        self._pass: _Pass | None = None

    @abstractmethod
    def _begin(self, epoch: int) -> Run[object]:
        """Begin the pass of an epoch."""

    @abstractmethod
    def _resume(self, state: Mapping[str, object]) -> Run[object]:
        """Resume a pass from the state of a run."""

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return self._signature.specs

    @property
    def by_position(self) -> bool:
        return self._signature.by_position

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return (tf.TensorSpec((), tf.resource),)

    @property
    def queue(self) -> tf.queue.QueueBase:
        """The queue of the current pass; ``reset`` replaces it, unless the user passed a queue."""
        return self._current_pass().queue

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def fill(self) -> int:
        return self._pass.pump.fill if self._pass else 0

    @property
    def waited(self) -> float:
        return self._waited + (self._pass.pump.waited if self._pass else 0.0)

    def statistics(self) -> RunStatistics | None:
        return None if self._pass is None else self._pass.pump.statistics()

    def reset(self, epoch: int = 0) -> None:
        self._pump(self._begin(checked_int(f"{type(self).__name__}: epoch", epoch, 0)))

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        elements = checked_int(f"{type(self).__name__}: elements", elements, 1)
        queue, pump = self._current_pass()
        pump.take(elements)
        return (queue.queue_ref,)

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        (handle,) = args
        specs = self._signature.specs
        with tf.device("/cpu:0"):  # queues are always on the CPU
            values = tf.raw_ops.QueueDequeueV2(
                handle=handle, component_types=[spec.dtype for spec in specs]
            )
        return [
            tf.ensure_shape(value, spec.shape) for value, spec in zip(values, specs, strict=True)
        ]

    def state_dict(self, behind: int = 0) -> State:
        run: dict[str, object] | None
        try:
            run = self._position(behind)
        except NotResumable as error:
            self.warn_of_restart(error)
            run = None
        return {"epoch": self._epoch, "run": run}

    def _position(self, behind: int) -> dict[str, object]:
        """Return the run's state ``behind`` elements before the end of the last step.

        Raises:
            NotResumable: The flow cannot be resumed.
        """
        return self._current_pass().pump.state_dict(behind)

    def restore(self, state: State) -> None:
        epoch, run = epoch_and_run(type(self).__name__, state)
        if run is None:
            self.reset(epoch)
        else:
            self._pump(self._resume(run))

    def close(self) -> None:
        self._end_pass()

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.pump.stop()
            self._waited += self._pass.pump.waited
        self._pass = None

    def _pump(self, run: Run[object]) -> None:
        self._end_pass()
        self._epoch = run.epoch
        name = type(self).__name__
        if self._user_queue is None:
            queue = _queue(self._signature, self.capacity)
            sink = _OwnQueue(queue, self._signature)
        else:
            queue = self._user_queue
            _clear(name, queue)
            serves_one_pass = isinstance(queue, tf.queue.RandomShuffleQueue)
            sink = (_OwnQueue if serves_one_pass else _UserQueue)(queue, self._signature)
        self._pass = _Pass(queue, Pump(run, sink, self.capacity, name=name, patience=self.patience))

    def _current_pass(self) -> _Pass:
        if self._pass is None:
            raise FlowError(
                f"{type(self).__name__}: no pass has begun: call reset() or restore(state) first"
            )
        return self._pass


class QueueInput(QueuedInput):
    """Feeds a step from a flow: a thread fills a queue of ``capacity`` elements.

    Dtypes and shapes are taken from the flow's spec, and each element is checked against them;
    ``spec`` adds what the flow's spec leaves unknown. Python numbers get the same dtypes as in
    ``batch``. A 64-byte aligned array, such as one from a worker process, is read in place, without
    a copy: do not write into an element that was yielded.

    ``queue`` is a queue of your own, with component types that match the elements; at most
    ``capacity`` elements are in it. It is emptied at ``reset``, and stays open after ``close``. A
    ``RandomShuffleQueue`` releases its last elements only when it is closed, so it is closed at the
    end of the pass and serves one pass: use it with a flow that repeats.

    A flow that cannot be resumed, such as one that other machines send, restarts its pass at
    ``restore``; ``state_dict`` logs a warning.

    >>> import flowdsl as fl, tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import EndOfPass, QueueInput
    >>> source = QueueInput(fl.from_range(10).batch(4))
    >>> @tf.function(input_signature=source.signature)
    ... def step(handle):
    ...     (numbers,) = source.tensors(handle)
    ...     return tf.reduce_sum(numbers)
    >>> with source:
    ...     source.reset()
    ...     try:
    ...         while True:
    ...             print(int(step(*source.next_args())))
    ...     except EndOfPass:
    ...         print("end")
    6
    22
    17
    end

    Raises:
        InvalidArgument: ``capacity`` is not an int of at least 1.
        SpecMismatch: A component has no dtype or is not an array, or the queue has other types;
            raised by the constructor, before anything runs.

    Source: ``QueueInput`` in tensorpack, whose loader errors end training silently.
    """

    def __init__(
        self,
        flow: Flow[object],
        queue: tf.queue.QueueBase | None = None,
        *,
        capacity: int = 50,
        spec: Sequence[tf.TensorSpec] | None = None,
    ) -> None:
        self.flow = checked_flow(type(self).__name__, flow)
        super().__init__(signature_of(type(self).__name__, flow.spec, spec), queue, capacity)

    def size(self) -> int:
        return len(self.flow)

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        return taken_of(self.flow, self.epoch, self._current_pass().pump.position, elements, behind)

    def close(self) -> None:
        super().close()
        self.flow.end_workers()

    def _begin(self, epoch: int) -> Run[object]:
        return self.flow.epoch(epoch)

    def _resume(self, state: Mapping[str, object]) -> Run[object]:
        return self.flow.resume(state)


class BatchQueueInput(QueueInput):
    """Feeds a step from a flow of single rows, which TensorFlow batches as it dequeues them.

    The queue contains up to ``capacity`` rows, and a step dequeues ``batch_size`` at once, so
    batches are never built in Python. Rows whose shapes are not fully known are padded with zeros,
    on the right, to the largest shape in their batch.

    Rows at the end of a pass that do not fill a batch are left out and counted in
    ``EndOfPass.rows``, or form a smaller batch with ``remainder="smaller"``. A queue of your own
    stays open at the end of a pass, so there they are always left out.

    >>> import flowdsl as fl, tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import BatchQueueInput
    >>> source = BatchQueueInput(fl.from_range(10), batch_size=4)
    >>> source.size(), source.specs[0].shape
    (2, TensorShape([4]))
    >>> with source:
    ...     source.reset()
    ...     (numbers,) = source.tensors(*source.next_args())
    >>> numbers.numpy().tolist()
    [0, 1, 2, 3]

    Raises:
        InvalidArgument: ``batch_size`` or ``capacity`` is not an int of at least 1; ``remainder``
            has another value, or is "smaller" with a queue of your own.
        SpecMismatch: As for ``QueueInput``; or the rank of a component is unknown.

    Source: ``BatchQueueInput`` in tensorpack.
    """

    def __init__(
        self,
        flow: Flow[object],
        batch_size: int,
        queue: tf.queue.QueueBase | None = None,
        *,
        capacity: int = 3000,
        remainder: Literal["drop", "smaller"] = "drop",
        spec: Sequence[tf.TensorSpec] | None = None,
    ) -> None:
        checked_choice("BatchQueueInput: remainder", remainder, "drop", "smaller")
        if remainder == "smaller" and queue is not None:
            raise InvalidArgument(
                "BatchQueueInput: remainder='smaller' needs a queue that ends with the pass: leave "
                "queue= out, or batch in the flow with .batch(n) and use QueueInput"
            )
        self._smaller = remainder == "smaller"
        super().__init__(flow, queue, capacity=capacity, spec=spec)
        self.batch_size = checked_int("BatchQueueInput: batch_size", batch_size, 1, capacity)
        for slot in self._signature.slots:
            if slot.shape is None:
                raise SpecMismatch(
                    f"BatchQueueInput: component {slot.name!r} has an unknown rank; declare it "
                    f"with spec=[tf.TensorSpec(shape, dtype), ...]"
                )

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        size = None if self._smaller else self.batch_size
        return tuple(
            tf.TensorSpec((size, *spec.shape.as_list()), spec.dtype, spec.name)
            for spec in self._signature.specs
        )

    def size(self) -> int:
        rows = super().size()
        return -(-rows // self.batch_size) if self._smaller else rows // self.batch_size

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        rows_behind = self._rows_of(behind)
        return super().taken(self._rows_of(elements + behind) - rows_behind, rows_behind)

    def _position(self, behind: int) -> dict[str, object]:
        return super()._position(self._rows_of(behind))

    def _rows_of(self, batches: int) -> int:
        """Return the rows of the last batches that were taken, of which the last may be smaller."""
        if not batches:
            return 0
        smaller = self._current_pass().pump.taken % self.batch_size
        return (smaller or self.batch_size) + (batches - 1) * self.batch_size

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        elements = checked_int("BatchQueueInput: elements", elements, 1)
        try:
            return super().next_args(elements * self.batch_size)
        except EndOfPass as end:
            batches, rows = divmod(end.left, self.batch_size)
            if not self._smaller or not rows:
                raise EndOfPass(batches, rows) from None
            if batches + 1 < elements:
                raise EndOfPass(batches + 1) from None
            left = end.left
        return super().next_args(left)

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        (handle,) = args
        specs = self.specs
        dequeue = tf.raw_ops.QueueDequeueUpToV2 if self._smaller else tf.raw_ops.QueueDequeueManyV2
        with tf.device("/cpu:0"):
            values = dequeue(
                handle=handle, n=self.batch_size, component_types=[spec.dtype for spec in specs]
            )
        return [
            tf.ensure_shape(value, spec.shape) for value, spec in zip(values, specs, strict=True)
        ]


def checked_flow(source: str, flow: object) -> Flow[object]:
    """Return the flow; raises InvalidArgument for anything else."""
    if not isinstance(flow, Flow):
        raise InvalidArgument(
            f"{source}: flow must be a Flow, got {type(flow).__name__}; make one with from_items "
            f"or from_iterable"
        )
    return flow


class _Pass(NamedTuple):
    """The queue and pump of the current pass."""

    queue: tf.queue.QueueBase
    pump: Pump[object]


class _OwnQueue(Sink[object]):
    """The sink of a pump: a queue that belongs to one pass."""

    def __init__(self, queue: tf.queue.QueueBase, signature: Signature) -> None:
        self._queue = queue
        self._signature = signature
        self._copies = AlignedCopies()

    def put(self, element: object, position: int) -> None:
        arrays = [
            self._copies.of(array) if isinstance(array, np.ndarray) else array
            for array in self._signature.arrays(element, position)
        ]
        tf.raw_ops.QueueEnqueueV2(handle=self._queue.queue_ref, components=arrays)

    def close(self) -> None:
        # init_scope: the garbage collector may call this while a step is traced.
        with tf.init_scope(), suppress(tf.errors.CancelledError):  # already closed
            self._queue.close(cancel_pending_enqueues=True)


class _UserQueue(_OwnQueue):
    """A queue that stays open after the pass; ``close`` makes room for a ``put`` that waits."""

    def __init__(self, queue: tf.queue.QueueBase, signature: Signature) -> None:
        super().__init__(queue, signature)
        self._putting = threading.Lock()
        self._closed = False

    def put(self, element: object, position: int) -> None:
        with self._putting:
            if not self._closed:
                super().put(element, position)

    def close(self) -> None:
        self._closed = True
        with tf.init_scope():
            while self._putting.locked():
                if int(self._queue.size()):
                    self._queue.dequeue()
                sleep(0.001)


def _queue(signature: Signature, capacity: int) -> tf.queue.QueueBase:
    """Return the strictest kind of TensorFlow queue for these shapes."""
    dtypes, shapes = [s.dtype for s in signature.specs], [s.shape for s in signature.specs]
    with tf.device("/cpu:0"):
        if all(shape.is_fully_defined() for shape in shapes):
            return tf.queue.FIFOQueue(capacity, dtypes, shapes)
        if all(shape.rank is not None for shape in shapes):
            return tf.queue.PaddingFIFOQueue(capacity, dtypes, shapes)
        # Neither kind takes an unknown rank. Elements are checked before they are queued.
        return tf.queue.FIFOQueue(capacity, dtypes)


def _fitting(source: str, queue: tf.queue.QueueBase, signature: Signature) -> tf.queue.QueueBase:
    """Return the queue; raise SpecMismatch, with both specs, if it does not accept the elements."""
    if not isinstance(queue, tf.queue.QueueBase):
        raise InvalidArgument(
            f"{source}: queue must be a tf.queue, such as FIFOQueue, got {type(queue).__name__}"
        )
    specs, shapes = signature.specs, queue.shapes or [tf.TensorShape(None)] * len(queue.dtypes)
    fits = queue.dtypes == [spec.dtype for spec in specs] and all(
        spec.shape.is_compatible_with(shape) for spec, shape in zip(specs, shapes, strict=True)
    )
    if queue.names and list(queue.names) != [slot.name for slot in signature.slots]:
        fits = False
    if not fits:
        holds = [tf.TensorSpec(s, d) for s, d in zip(shapes, queue.dtypes, strict=True)]
        has = f", named {', '.join(queue.names)}" if queue.names else ""
        raise SpecMismatch(
            f"{source}: the queue holds {_described(holds)}{has}, but an element is "
            f"{_described(specs)}"
        )
    return queue


def _described(specs: Sequence[tf.TensorSpec]) -> str:
    parts = [
        f"{spec.dtype.name}{'[...]' if spec.shape.rank is None else spec.shape.as_list()}"
        for spec in specs
    ]
    return f"({', '.join(parts)})"


def _clear(source: str, queue: tf.queue.QueueBase) -> None:
    """Empty the queue of elements of an earlier pass."""
    if bool(queue.is_closed()):
        raise FlowError(
            f"{source}: its queue is closed; a RandomShuffleQueue serves one pass: use a flow "
            f"with .repeat()"
        )
    while int(queue.size()):
        queue.dequeue()

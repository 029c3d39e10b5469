"""QueueInput: a flow through a TensorFlow queue."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from flowdsl.arguments import checked_int, is_int
from flowdsl.errors import FlowError, InvalidFlow, NotResumable, StateMismatch
from flowdsl.feeding.pump import Pump, Sink
from flowdsl.flow import Flow
from flowdsl.graph.layout import Layout, layout_of, to_arrays
from flowdsl.graph.source import InputSource, State
from flowdsl.specs import StructSpec

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run

_log = logging.getLogger(__name__)

_MOST_IN_A_QUEUE = 2**31
"""The limit of a queue's capacity: TensorFlow counts elements as int32."""


class QueueInput(InputSource):
    """Feeds a step from a flow: a thread fills a queue of ``capacity`` elements, steps empty it.

    Dtypes and shapes come from the flow's spec, and each element is checked against them; ``spec``
    adds what the flow does not know. A 64-byte aligned array, such as one from a worker process,
    is read in place, without a copy: do not write into an element that was yielded.

    A flow that cannot be resumed, such as one that other machines send, begins its pass again at
    ``restore``; ``state_dict`` warns of it.

    The queue's handle is an argument of the step, so ``reset`` begins a pass without tracing again.
    The elements before an error of the flow are delivered; then ``next_args`` raises that error.

    >>> import flowdsl as fl, tensorflow as tf
    >>> from flowdsl.graph import EndOfPass, QueueInput, logical_cpus
    >>> devices = logical_cpus(2)
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
        InvalidFlow: ``capacity`` is no int of at least 1.
        SpecMismatch: A component has no dtype, or is no array; raised here, before anything runs.

    Source: ``QueueInput`` in tensorpack, whose loader errors end training in silence.
    """

    def __init__(
        self,
        flow: Flow[object],
        *,
        capacity: int = 50,
        spec: Sequence[tf.TensorSpec] | None = None,
    ) -> None:
        if not isinstance(flow, Flow):
            raise InvalidFlow(
                f"QueueInput: flow must be a Flow, got {type(flow).__name__}; make one with "
                f"from_items or from_iterable"
            )
        self.flow = flow
        self.capacity = checked_int("QueueInput: capacity", capacity, 1, _MOST_IN_A_QUEUE)
        self._layout = layout_of(flow.spec, spec)
        self._epoch = 0
        self._warned = False
        self._pass: _Pass | None = None

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return tuple(slot.tensor for slot in self._layout)

    @property
    def by_place(self) -> bool:
        spec = self.flow.spec
        return not isinstance(spec, StructSpec) or issubclass(spec.form, tuple)

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return (tf.TensorSpec((), tf.resource),)

    @property
    def queue(self) -> tf.queue.QueueBase:
        """The queue of the current pass; ``reset`` makes another."""
        return self._begun().queue

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def fill(self) -> int:
        return self._pass.pump.fill if self._pass else 0

    def size(self) -> int:
        return len(self.flow)

    def reset(self, epoch: int = 0) -> None:
        self._begin(self.flow.epoch(checked_int("QueueInput: epoch", epoch, 0)))

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        elements = checked_int("QueueInput: elements", elements, 1)
        queue, pump = self._begun()
        pump.take(elements)
        return (queue.queue_ref,)

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        (handle,) = args
        specs = self.specs
        with tf.device("/cpu:0"):  # queues are on the CPU, whatever the step's device
            values = tf.raw_ops.QueueDequeueV2(
                handle=handle, component_types=[spec.dtype for spec in specs]
            )
        return [
            tf.ensure_shape(value, spec.shape) for value, spec in zip(values, specs, strict=True)
        ]

    def state_dict(self) -> State:
        try:
            run = self._begun().pump.state_dict()
        except NotResumable as error:
            if not self._warned:
                _log.warning(
                    "training resumed from this state would begin the pass again: %s", error
                )
            self._warned, run = True, None
        return {"epoch": self._epoch, "run": run}

    def restore(self, state: State) -> None:
        match state:
            case {"epoch": int(epoch), "run": None} if is_int(epoch, 0):  # it cannot be resumed
                self.reset(epoch)
            case {"epoch": int(epoch), "run": Mapping() as run} if is_int(epoch, 0):
                self._begin(self.flow.resume(run))
            case _:
                raise StateMismatch(
                    f"QueueInput: state must be what state_dict() gave, got {state!r}"
                )

    def close(self) -> None:
        if self._pass is not None:
            self._pass.pump.stop()
        self._pass = None

    def _begin(self, run: Run[object]) -> None:
        self.close()
        self._epoch = run.epoch
        queue = _queue(self._layout, self.capacity)
        sink = _QueueSink(queue, self._layout)
        self._pass = _Pass(queue, Pump(run, sink, self.capacity, name="QueueInput"))

    def _begun(self) -> _Pass:
        if self._pass is None:
            raise FlowError("QueueInput: no pass has begun: call reset() or restore(state) first")
        return self._pass


class _Pass(NamedTuple):
    """A pass that has begun."""

    queue: tf.queue.QueueBase
    pump: Pump[object]


class _QueueSink(Sink[object]):
    """A TensorFlow queue as the sink of a pump."""

    def __init__(self, queue: tf.queue.QueueBase, layout: Layout) -> None:
        self._queue = queue
        self._layout = layout

    def put(self, element: object, position: int) -> None:
        arrays = to_arrays(self._layout, element, position)
        tf.raw_ops.QueueEnqueueV2(handle=self._queue.queue_ref, components=arrays)

    def close(self) -> None:
        # init_scope: the garbage collector may call this while a step is traced.
        with tf.init_scope(), suppress(tf.errors.CancelledError):  # already closed
            self._queue.close(cancel_pending_enqueues=True)


def _queue(layout: Layout, capacity: int) -> tf.queue.QueueBase:
    """The strictest queue that TensorFlow has for these shapes."""
    specs = [slot.tensor for slot in layout]
    dtypes, shapes = [spec.dtype for spec in specs], [spec.shape for spec in specs]
    with tf.device("/cpu:0"):
        if all(shape.is_fully_defined() for shape in shapes):
            return tf.queue.FIFOQueue(capacity, dtypes, shapes)
        if all(shape.rank is not None for shape in shapes):
            return tf.queue.PaddingFIFOQueue(capacity, dtypes, shapes)
        # Neither queue above takes an unknown rank; each element is checked before it is put in.
        return tf.queue.FIFOQueue(capacity, dtypes)

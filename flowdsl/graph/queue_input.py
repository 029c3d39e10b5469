"""QueueInput: a flow through a TensorFlow queue."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidFlow, NotResumable, StateMismatch
from flowdsl.flow import Flow
from flowdsl.graph.feeder import Feeder
from flowdsl.graph.layout import Layout, layout_of
from flowdsl.graph.source import InputSource, State

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run

_log = logging.getLogger(__name__)


class QueueInput(InputSource):
    """Feeds a step from a flow: a thread fills a queue of ``capacity`` elements, steps empty it.

    Dtypes and shapes come from the flow's spec, and each element is held to them; ``spec`` says
    what the flow does not know. An array that is 64-byte aligned, as those from worker processes
    are, is read where it lies: do not write into an element that was yielded.

    A flow whose place in a pass no position tells, such as one that other machines send, is begun
    anew by ``restore``; ``state_dict`` warns of it.

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
        if isinstance(capacity, bool) or capacity < 1:
            raise InvalidFlow(f"QueueInput: capacity must be an int >= 1, got {capacity!r}")
        self.flow = flow
        self.capacity = capacity
        self._layout = layout_of(flow.spec, spec)
        self._epoch = 0
        self._warned = False
        self._feeder: Feeder | None = None
        self._stop: weakref.finalize[[], QueueInput] | None = None

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return tuple(slot.tensor for slot in self._layout)

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return (tf.TensorSpec((), tf.resource),)

    @property
    def queue(self) -> tf.queue.QueueBase:
        """The queue of the present pass; ``reset`` makes another."""
        return self._begun().queue

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def fill(self) -> int:
        return self._feeder.fill if self._feeder else 0

    def size(self) -> int:
        return len(self.flow)

    def reset(self, epoch: int = 0) -> None:
        flow = self.flow
        self._begin(lambda: flow.epoch(epoch), epoch)

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        if elements > self.capacity:
            raise InvalidFlow(
                f"QueueInput: capacity={self.capacity} is too small for a step of {elements} "
                f"elements; give capacity={elements} or more"
            )
        feeder = self._begun()
        feeder.take(elements)
        return (feeder.queue.queue_ref,)

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        (handle,) = args
        specs = self.specs
        with tf.device("/cpu:0"):  # where queues are, whatever device the step is on
            values = tf.raw_ops.QueueDequeueV2(
                handle=handle, component_types=[spec.dtype for spec in specs]
            )
        return [
            tf.ensure_shape(value, spec.shape) for value, spec in zip(values, specs, strict=True)
        ]

    def state_dict(self) -> State:
        try:
            run = self._begun().state_dict()
        except NotResumable as error:
            if not self._warned:
                _log.warning("training that goes on from here begins this pass anew: %s", error)
            self._warned, run = True, None
        return {"epoch": self._epoch, "run": run}

    def restore(self, state: State) -> None:
        epoch, run = state.get("epoch"), state.get("run")
        if isinstance(epoch, int) and run is None and "run" in state:  # it could not be told
            self.reset(epoch)
            return
        if not isinstance(epoch, int) or not isinstance(run, Mapping):
            raise StateMismatch(f"QueueInput: not a state that state_dict() gave: {state!r}")
        resumed = self.flow.resume(cast("State", run))
        self._begin(lambda: resumed, epoch)

    def close(self) -> None:
        if self._stop is not None:
            self._stop()
        self._feeder = self._stop = None

    def _begin(self, run: Callable[[], Run[object]], epoch: int) -> None:
        self.close()
        self._epoch = epoch
        queue = _queue(self._layout, self.capacity)
        self._feeder = Feeder(queue, self.capacity, run, self._layout)
        # Neither a forgotten input nor the end of the program leaves the flow's processes behind.
        self._stop = weakref.finalize(self, self._feeder.stop)

    def _begun(self) -> Feeder:
        if self._feeder is None:
            raise FlowError("QueueInput: no pass has begun: call reset() or restore(state) first")
        return self._feeder


def _queue(layout: Layout, capacity: int) -> tf.queue.QueueBase:
    """The strictest queue that TensorFlow has for these shapes."""
    specs = [slot.tensor for slot in layout]
    dtypes, shapes = [spec.dtype for spec in specs], [spec.shape for spec in specs]
    with tf.device("/cpu:0"):
        if all(shape.is_fully_defined() for shape in shapes):
            return tf.queue.FIFOQueue(capacity, dtypes, shapes)
        if all(shape.rank is not None for shape in shapes):
            return tf.queue.PaddingFIFOQueue(capacity, dtypes, shapes)
        # Neither queue knows of an unknown rank; the feeder has checked each element already.
        return tf.queue.FIFOQueue(capacity, dtypes)

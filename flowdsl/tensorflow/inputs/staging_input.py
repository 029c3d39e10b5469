"""StagingInput: copies the elements of the next steps to the device in advance."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import count

import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.feeding.pump import EndOfPass
from flowdsl.nodes import checked, checked_int
from flowdsl.tensorflow.inputs.source import InputOver, InputSource, State, Taken

_numbers = count()


class StagingInput(InputOver):
    """Keeps the elements of the next ``nr_stage`` steps on the device, so that no step waits.

    A step uses elements that an earlier step brought to the device. While it computes, the elements
    of a later step are taken from ``input`` and copied. So copying to a GPU costs a step no time;
    on the CPU there is little to gain. ``device`` is where elements are kept. By default, the first
    element of a step is on the first GPU, and so on; without GPUs, all are on the CPU.

    A step gets all of its elements or does not run: the last steps of a pass only use staged
    elements. This source is for training, where all elements of a step are taken together.
    ``input`` must feed the step by itself, not through the arguments of each call.

    >>> import flowdsl as fl, tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import QueueInput, StagingInput
    >>> source = StagingInput(QueueInput(fl.from_range(5)), nr_stage=2)
    >>> step = tf.function(input_signature=source.signature)(source.tensors)
    >>> with source:
    ...     source.reset()
    ...     [int(step(*source.next_args())[0]) for _ in range(source.size())]
    [0, 1, 2, 3, 4]

    Raises:
        InvalidArgument: ``input`` is not an input source, passes its elements as arguments, or is
            staged already; ``nr_stage`` is not an int of at least 1.

    Source: ``StagingInput`` in tensorpack; the ``StagingArea`` of TensorFlow.
    """

    def __init__(
        self,
        input: InputSource,  # noqa: A002  # tensorpack's name
        nr_stage: int = 1,
        device: str | None = None,
    ) -> None:
        if not isinstance(input, InputSource):
            raise InvalidArgument(
                f"StagingInput: input must be an InputSource, got {type(input).__name__}; to "
                f"read a flow, pass QueueInput(flow)"
            )
        if input.most_a_step is not None:
            raise InvalidArgument(
                f"StagingInput: {type(input).__name__} passes its elements as arguments of each "
                f"step, so they cannot be staged; use a QueueInput"
            )
        if _is_staged(input):
            raise InvalidArgument(
                "StagingInput: input is staged already; one StagingInput is enough"
            )
        super().__init__(input)
        self._nr_stage = checked_int("StagingInput: nr_stage", nr_stage, 1)
        if device is not None:
            checked("StagingInput: device", device, str, "the name of a device")
        self._device = device
        self._name = f"flowdsl_staging_{next(_numbers)}"
        self._puts: dict[int, Callable[..., object]] = {}
        """By the number of elements of a step, the function that stages them."""
        self._calls: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        """The number of calls of ``tensors`` while each graph was traced."""
        self._eager_calls = 0
        self._forget()

    @staticmethod
    def can_stage(source: InputSource) -> bool:
        """Return True if this input can be staged: it feeds the step itself and is not staged."""
        return source.most_a_step is None and not _is_staged(source)

    def _forget(self) -> None:
        self._elements_per_step = 0
        """The number of elements that a step takes; 0 before the first step."""
        self._staged = 0
        """The number of steps whose elements are on the device."""
        self._ahead = 0
        """The number of steps whose elements were taken from the input, and not by a step."""
        self._last_args: tuple[tf.Tensor, ...] = ()
        """The input's arguments of the last step that it fed."""
        self._pending_error: Exception | None = None
        """The end or error of the input, raised when no step is staged any more."""

    @property
    def allows_loops(self) -> bool:
        return False  # it numbers the calls of ``tensors`` in a graph; a loop has its own graph

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        """The signature of the input, and a bool: True if a step stages its next element too."""
        return (*self.source.signature, tf.TensorSpec((), tf.bool))

    @property
    def fill(self) -> int:
        return self.source.fill + self._staged * self._elements_per_step

    def reset(self, epoch: int = 0) -> None:
        self._clear()
        self.source.reset(epoch)

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        elements = checked_int("StagingInput: elements", elements, 1)
        if elements != self._elements_per_step:
            self._begin(elements)
        while self._staged < self._nr_stage and self._take():
            if elements not in self._puts:
                self._puts[elements] = self._staging_function()
            self._puts[elements](*self._last_args)
            self._staged += 1
        self._eager_calls = 0
        if self._take():
            args = (*self._last_args, tf.constant(True))
            self._ahead -= 1  # at the end: an interrupted call has taken nothing
            return args
        if self._staged:
            args = (*self._last_args, tf.constant(False))
            self._staged -= 1
            self._ahead -= 1
            return args
        assert self._pending_error is not None
        raise self._pending_error

    def _begin(self, elements: int) -> None:
        if self._staged:
            raise InvalidArgument(
                f"StagingInput: the staged elements are for steps of {self._elements_per_step} "
                f"element(s), not {elements}"
            )
        self._elements_per_step, self._pending_error = elements, None

    def _take(self) -> bool:
        """Take the elements of a step from the input; return False at its end or at an error."""
        if self._pending_error is None:
            try:
                self._last_args = self.source.next_args(self._elements_per_step)
                self._ahead += 1
            except (EndOfPass, Exception) as error:
                if not self._staged:
                    raise
                self._pending_error = error
        return self._pending_error is None

    def _staging_function(self) -> Callable[..., object]:
        """Return a function that copies the elements of a step to the device."""
        source, elements = self.source, self._elements_per_step

        @tf.function(input_signature=source.signature, autograph=False)
        def put(*args: tf.Tensor) -> None:
            for k in range(elements):
                values = source.tensors(*args)
                with tf.device(self._device_of(k)):
                    tf.raw_ops.Stage(values=values, shared_name=self._area_name(k))

        return put

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        *inputs, stages_next = args
        k, specs = self._index_in_step(), self.specs
        next_element = tf.cond(
            stages_next,
            lambda: self.source.tensors(*inputs),
            lambda: [_placeholder(spec) for spec in specs],
        )
        with tf.device(self._device_of(k)):
            # Dequeue the next element first, so that none is lost where the data ends.
            with tf.control_dependencies(next_element):
                values = tf.raw_ops.Unstage(
                    dtypes=[spec.dtype for spec in specs], shared_name=self._area_name(k)
                )
            tf.cond(
                stages_next,
                lambda: _stage(next_element, self._area_name(k)),
                lambda: tf.constant(True),
            )
        return [
            tf.ensure_shape(value, spec.shape) for value, spec in zip(values, specs, strict=True)
        ]

    def _index_in_step(self) -> int:
        """Return the number of this call of ``tensors`` within its step."""
        if tf.executing_eagerly():
            self._eager_calls += 1
            return self._eager_calls - 1
        graph = tf.compat.v1.get_default_graph()
        self._calls[graph] = self._calls.get(graph, 0) + 1
        return self._calls[graph] - 1

    def _area_name(self, k: int) -> str:
        return f"{self._name}_{k}"

    def _device_of(self, k: int) -> str:
        if self._device is not None:
            return self._device
        gpus = len(tf.config.list_logical_devices("GPU"))
        return f"/gpu:{k % gpus}" if gpus else "/cpu:0"

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        return self.source.taken(elements, behind + self._ahead * self._elements_per_step)

    def state_dict(self, behind: int = 0) -> State:
        return self.source.state_dict(behind + self._ahead * self._elements_per_step)

    def restore(self, state: State) -> None:
        self._clear()
        self.source.restore(state)

    def close(self) -> None:
        self._clear()
        self.source.close()

    def _clear(self) -> None:
        for k in range(self._elements_per_step):  # also what an interrupted step has left there
            with tf.device(self._device_of(k)):
                tf.raw_ops.StageClear(
                    dtypes=[spec.dtype for spec in self.specs], shared_name=self._area_name(k)
                )
        self._forget()


def _is_staged(source: InputSource) -> bool:
    while isinstance(source, InputOver) and not isinstance(source, StagingInput):
        source = source.source
    return isinstance(source, StagingInput)


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    """Return a placeholder for the next element in a step that does not stage one."""
    if spec.shape.rank is None:
        return tf.zeros((), spec.dtype)
    return tf.zeros([dim or 0 for dim in spec.shape.as_list()], spec.dtype)


def _stage(values: list[tf.Tensor], area: str) -> tf.Tensor:
    tf.raw_ops.Stage(values=values, shared_name=area)
    return tf.constant(True)

"""Input sources whose elements are computed by TensorFlow, in the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from flowdsl.errors import EndlessFlow, FlowError, InvalidArgument, StateMismatch
from flowdsl.feeding.pump import EndOfPass
from flowdsl.nodes import checked_int, checked_list, is_int
from flowdsl.tensorflow.inputs.source import InputSource, State
from flowdsl.tensorflow.queues.runners import FilledQueue, recording_uses, with_sources

Shape: TypeAlias = Sequence[int]


class TensorInput(InputSource):
    """Elements that TensorFlow operations compute, such as a reading pipeline of TensorFlow.

    ``get_tensor_fn`` is called once for each element that a step takes, while the step is traced,
    and returns the components as a list of tensors; it is called once more to find their types. Its
    operations run in every step. A state contains the number of elements that were taken, not the
    position of the operations: they continue if they keep it in variables, which checkpoints store.
    Queues begin again, and ``state_dict`` logs a warning of that.

    ``size`` is the number of elements of a pass; without it, a pass is endless, unless the
    operations raise ``OutOfRangeError``. If the operations dequeue from queues of
    ``flowdsl.tensorflow.queues``, ``scalars`` has the fill of each queue by its ``summary_name``.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import TensorInput
    >>> count = tf.Variable(0)
    >>> source = TensorInput(lambda: [count.assign_add(1)], size=3)
    >>> step = tf.function(input_signature=source.signature)(source.tensors)
    >>> with source:
    ...     source.reset()
    ...     [int(step(*source.next_args())[0]) for _ in range(source.size())]
    [1, 2, 3]

    Raises:
        InvalidArgument: ``get_tensor_fn`` is not a function, or does not return a list of tensors;
            ``size`` is not an int of at least 1.

    Source: ``TensorInput`` in tensorpack.
    """

    def __init__(
        self, get_tensor_fn: Callable[[], Sequence[tf.Tensor]], size: int | None = None
    ) -> None:
        name = type(self).__name__
        if not callable(get_tensor_fn):
            raise InvalidArgument(
                f"{name}: get_tensor_fn must be a function that returns a list of tensors, got "
                f"{type(get_tensor_fn).__name__}"
            )
        self._make = get_tensor_fn
        self._size = None if size is None else checked_int(f"{name}: size", size, 1)
        self._specs: tuple[tf.TensorSpec, ...] | None = None
        self._queues: list[FilledQueue] = []
        self._epoch = 0
        self._taken: int | None = None

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        if self._specs is None:
            with recording_uses() as used:
                traced = tf.function(autograph=False)(self._checked_tensors).get_concrete_function()
            self._queues = with_sources(used)
            self._specs = tuple(
                tf.TensorSpec(tensor.shape, tensor.dtype, str(k))
                for k, tensor in enumerate(traced.structured_outputs)
            )
        return self._specs

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return ()

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def fill(self) -> int:
        return 0

    def scalars(self) -> dict[str, float]:
        named = [queue for queue in self._queues if queue.summary_name]
        return {f"{queue.name}/{queue.summary_name}": queue.fraction_full() for queue in named}

    def size(self) -> int:
        if self._size is None:
            raise EndlessFlow(f"{type(self).__name__}: it has no size; pass size=")
        return self._size

    def reset(self, epoch: int = 0) -> None:
        self._epoch, self._taken = checked_int(f"{type(self).__name__}: epoch", epoch, 0), 0

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        elements = checked_int(f"{type(self).__name__}: elements", elements, 1)
        taken = self._taken_so_far()
        if self._size is not None and taken + elements > self._size:
            raise EndOfPass(self._size - taken)
        self._taken = taken + elements
        return ()

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        return self._checked_tensors()

    def _checked_tensors(self) -> list[tf.Tensor]:
        tensors = self._make()
        if not isinstance(tensors, (list, tuple)):
            raise InvalidArgument(
                f"{type(self).__name__}: get_tensor_fn must return a list of tensors, got "
                f"{type(tensors).__name__}"
            )
        return [tf.convert_to_tensor(tensor) for tensor in tensors]

    def state_dict(self, behind: int = 0) -> State:
        if self._queues:
            self.warn_of_restart("TensorInput: a queue does not store its position")
        return {"epoch": self._epoch, "taken": self._taken_so_far() - behind}

    def restore(self, state: State) -> None:
        match state:
            case {"epoch": int(epoch), "taken": int(taken)} if is_int(epoch, 0) and is_int(
                taken, 0
            ):
                self._epoch, self._taken = epoch, taken
            case _:
                raise StateMismatch(
                    f"{type(self).__name__}: state must be what state_dict() returned, got "
                    f"{state!r}"
                )

    def close(self) -> None:
        self._taken = None

    def _taken_so_far(self) -> int:
        if self._taken is None:
            raise FlowError(
                f"{type(self).__name__}: no pass has begun: call reset() or restore(state) first"
            )
        return self._taken


class DummyConstantInput(TensorInput):
    """Zeros of fixed shapes, created once, on the device of the step.

    A step over this source costs only the model's time, so comparing with it shows the cost of
    another input source. ``dtypes`` lists the dtypes of the components; the default is
    ``tf.float32``.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import DummyConstantInput
    >>> source = DummyConstantInput([(32, 224, 224, 3), (32,)], dtypes=[tf.float32, tf.int64])
    >>> with source:
    ...     source.reset()
    ...     images, labels = source.tensors(*source.next_args())
    >>> images.shape, labels.dtype
    (TensorShape([32, 224, 224, 3]), tf.int64)

    Raises:
        InvalidArgument: A shape is not fully known, or the numbers of dtypes and shapes differ.

    Source: ``DummyConstantInput`` in tensorpack.
    """

    def __init__(self, shapes: Sequence[Shape], dtypes: Sequence[tf.DType] | None = None) -> None:
        name = "DummyConstantInput"
        kinds_of_shape: tuple[type, ...] = (tuple, list, tf.TensorShape)
        checked_list(f"{name}: shapes", shapes, kinds_of_shape, "shapes, such as (2, 3)")
        sizes = [tuple(shape) for shape in shapes]
        for shape in sizes:
            if not all(is_int(dim, 0) for dim in shape):
                raise InvalidArgument(
                    f"DummyConstantInput: shapes must be fully known, each a list of ints >= 0, "
                    f"got {shape}"
                )
        kinds = [tf.float32] * len(sizes) if dtypes is None else [*_dtypes(dtypes)]
        if not sizes or len(kinds) != len(sizes):
            raise InvalidArgument(
                f"DummyConstantInput: at least one shape is needed, and as many dtypes as shapes, "
                f"got {len(sizes)} shape(s) and {len(kinds)} dtype(s)"
            )
        self._zeros: dict[str, list[tf.Tensor]] = {}
        self._kinds = list(zip(sizes, kinds, strict=True))
        super().__init__(self._constants)

    def _constants(self) -> list[tf.Tensor]:
        with tf.init_scope():  # created once, outside of the step
            device = tf.zeros(()).device
            if device not in self._zeros:
                self._zeros[device] = [tf.zeros(shape, kind) for shape, kind in self._kinds]
            return self._zeros[device]


def _dtypes(dtypes: Sequence[tf.DType]) -> tuple[tf.DType, ...]:
    kinds: tuple[type, ...] = (tf.DType, np.dtype, str, type)
    checked_list("DummyConstantInput: dtypes", dtypes, kinds, "dtypes, such as tf.int32")
    try:
        return tuple(tf.as_dtype(dtype) for dtype in dtypes)
    except TypeError as error:
        raise InvalidArgument(f"DummyConstantInput: dtypes: {error}") from error

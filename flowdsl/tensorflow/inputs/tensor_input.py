"""Input sources whose elements TensorFlow makes itself, in the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from flowdsl.errors import EndlessFlow, FlowError, InvalidFlow, StateMismatch
from flowdsl.feeding.pump import EndOfPass
from flowdsl.nodes import checked_int, is_int
from flowdsl.tensorflow.inputs.source import InputSource, State
from flowdsl.tensorflow.queues.runners import FilledQueue, noting, with_sources

Shape: TypeAlias = Sequence[int]


class TensorInput(InputSource):
    """Elements that operations of TensorFlow make, such as a reading pipeline of its own.

    ``get_tensor_fn`` is called once for each element that a step takes, while the step is traced,
    and gives the components as a list of tensors; it is called once more to learn their types. What
    it makes is computed in every step. ``size`` is how many elements a pass has; without it a pass
    has no end, unless the operations raise ``OutOfRangeError``. Of the queues that it takes from,
    as those of ``flowdsl.tensorflow.queues``, ``scalars`` has the fill of each by its
    ``summary_name``.

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
        InvalidFlow: ``get_tensor_fn`` is no function, or gives no list of tensors; ``size`` is no
            int of at least 1.

    Source: ``TensorInput`` in tensorpack.
    """

    def __init__(
        self, get_tensor_fn: Callable[[], Sequence[tf.Tensor]], size: int | None = None
    ) -> None:
        name = type(self).__name__
        if not callable(get_tensor_fn):
            raise InvalidFlow(
                f"{name}: get_tensor_fn must be a function that gives a list of tensors, got "
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
            with noting() as used:
                traced = tf.function(autograph=False)(self._made).get_concrete_function()
            self._queues = [queue for queue in with_sources(used) if queue.summary_name]
            self._specs = tuple(
                tf.TensorSpec(one.shape, one.dtype, str(k))
                for k, one in enumerate(traced.structured_outputs)
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
        return {f"{q.name}/{q.summary_name}": q.fraction_full() for q in self._queues}

    def size(self) -> int:
        if self._size is None:
            raise EndlessFlow(f"{type(self).__name__}: it has no size; give one with size=")
        return self._size

    def reset(self, epoch: int = 0) -> None:
        self._epoch, self._taken = checked_int(f"{type(self).__name__}: epoch", epoch, 0), 0

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        elements = checked_int(f"{type(self).__name__}: elements", elements, 1)
        taken = self._begun()
        if self._size is not None and taken + elements > self._size:
            raise EndOfPass(self._size - taken)
        self._taken = taken + elements
        return ()

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        return self._made()

    def _made(self) -> list[tf.Tensor]:
        made = self._make()
        if not isinstance(made, (list, tuple)):
            raise InvalidFlow(
                f"{type(self).__name__}: get_tensor_fn must give a list of tensors, got "
                f"{type(made).__name__}"
            )
        return [tf.convert_to_tensor(one) for one in made]

    def state_dict(self, behind: int = 0) -> State:
        return {"epoch": self._epoch, "taken": self._begun() - behind}

    def restore(self, state: State) -> None:
        match state:
            case {"epoch": int(epoch), "taken": int(taken)} if is_int(epoch, 0) and is_int(
                taken, 0
            ):
                self._epoch, self._taken = epoch, taken
            case _:
                raise StateMismatch(
                    f"{type(self).__name__}: state must be what state_dict() gave, got {state!r}"
                )

    def close(self) -> None:
        self._taken = None

    def _begun(self) -> int:
        if self._taken is None:
            raise FlowError(
                f"{type(self).__name__}: no pass has begun: call reset() or restore(state) first"
            )
        return self._taken


class DummyConstantInput(TensorInput):
    """Zeros of these shapes, made once, on the device that the step runs on.

    A step over it costs what the model costs, so it says what an input source costs. ``dtypes`` are
    those of the components, ``tf.float32`` unless given.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import DummyConstantInput
    >>> source = DummyConstantInput([(32, 224, 224, 3), (32,)], dtypes=[tf.float32, tf.int64])
    >>> with source:
    ...     source.reset()
    ...     images, labels = source.tensors(*source.next_args())
    >>> images.shape, labels.dtype
    (TensorShape([32, 224, 224, 3]), tf.int64)

    Raises:
        InvalidFlow: A shape is not fully known, or there are not as many dtypes as shapes.

    Source: ``DummyConstantInput`` in tensorpack.
    """

    def __init__(self, shapes: Sequence[Shape], dtypes: Sequence[tf.DType] | None = None) -> None:
        given = [tuple(shape) for shape in shapes]
        for shape in given:
            if not all(is_int(dim, 0) for dim in shape):
                raise InvalidFlow(
                    f"DummyConstantInput: shapes must be fully known, each a list of ints >= 0, "
                    f"got {shape}"
                )
        kinds = [tf.float32] * len(given) if dtypes is None else list(dtypes)
        if not given or len(kinds) != len(given):
            raise InvalidFlow(
                f"DummyConstantInput: there must be a shape or more, and as many dtypes as shapes, "
                f"got {len(given)} shape(s) and {len(kinds)} dtype(s)"
            )
        self._zeros: dict[str, list[tf.Tensor]] = {}
        self._kinds = list(zip(given, kinds, strict=True))
        super().__init__(self._constants)

    def _constants(self) -> list[tf.Tensor]:
        with tf.init_scope():  # once, and not a part of every step
            device = tf.zeros(()).device
            if device not in self._zeros:
                self._zeros[device] = [tf.zeros(shape, kind) for shape, kind in self._kinds]
            return self._zeros[device]

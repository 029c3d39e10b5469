"""PlaceholderInput: elements that the caller passes explicitly."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidArgument, SpecMismatch, StateMismatch, UnknownLength
from flowdsl.nodes import checked_int, checked_list, is_int
from flowdsl.tensorflow.inputs.source import InputSource, State


class PlaceholderInput(InputSource):
    """The components of an element as arguments of the step, passed by the caller.

    Either call the step with the components, like any function, or pass them to ``feed``; then
    ``next_args`` returns them once.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import PlaceholderInput
    >>> source = PlaceholderInput([tf.TensorSpec((None,), tf.float32, "x")])
    >>> @tf.function(input_signature=source.signature)
    ... def step(*args):
    ...     (x,) = source.tensors(*args)
    ...     return tf.reduce_sum(x)
    >>> float(step(tf.constant([1.0, 2.0])))
    3.0
    >>> source.feed(tf.constant([3.0]))
    >>> float(step(*source.next_args()))
    3.0

    Raises:
        InvalidArgument: ``specs`` is not a list of ``tf.TensorSpec``.

    Source: ``PlaceholderInput`` in tensorpack.
    """

    def __init__(self, specs: Sequence[tf.TensorSpec]) -> None:
        listed = checked_list("PlaceholderInput: specs", specs, tf.TensorSpec, "tf.TensorSpec")
        if not listed:
            raise InvalidArgument(
                f"PlaceholderInput: specs must list a tf.TensorSpec(shape, dtype, name) for each "
                f"component, got {specs!r}"
            )
        self._specs = tuple(
            tf.TensorSpec(spec.shape, spec.dtype, spec.name or str(k))
            for k, spec in enumerate(listed)
        )
        self._epoch = 0
        self._fed: tuple[tf.Tensor, ...] | None = None

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return self._specs

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return self._specs

    @property
    def most_a_step(self) -> int | None:
        return 1

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def fill(self) -> int:
        return int(self._fed is not None)

    def size(self) -> int:
        raise UnknownLength("PlaceholderInput: the number of elements depends on the calls of feed")

    def feed(self, *components: object) -> None:
        """Set the components of the next element: arrays, numbers or tensors.

        Raises:
            SpecMismatch: They do not match ``specs``; nothing is cast.
        """
        if len(components) != len(self._specs):
            raise SpecMismatch(
                f"PlaceholderInput: {len(components)} component(s) were fed, its specs are "
                f"{', '.join(str(spec.name) for spec in self._specs)}"
            )
        fed = []
        for spec, value in zip(self._specs, components, strict=True):
            tensor = tf.convert_to_tensor(value)
            if not spec.is_compatible_with(tensor):
                raise SpecMismatch(
                    f"PlaceholderInput: component {spec.name!r} is {tensor.dtype.name}"
                    f"{tensor.shape.as_list()}, but its spec is {spec}; nothing is cast"
                )
            fed.append(tensor)
        self._fed = tuple(fed)

    def reset(self, epoch: int = 0) -> None:
        self._epoch = checked_int("PlaceholderInput: epoch", epoch, 0)
        self._fed = None

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        if elements != 1:
            raise InvalidArgument("PlaceholderInput: a step takes one element, which was fed")
        if self._fed is None:
            raise FlowError("PlaceholderInput: nothing was fed: call feed(...) before each step")
        fed, self._fed = self._fed, None
        return fed

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        return list(args)

    def state_dict(self, behind: int = 0) -> State:
        return {"epoch": self._epoch}

    def restore(self, state: State) -> None:
        match state:
            case {"epoch": int(epoch)} if is_int(epoch, 0):
                self.reset(epoch)
            case _:
                raise StateMismatch(
                    f"PlaceholderInput: state must be what state_dict() returned, got {state!r}"
                )

    def close(self) -> None:
        self._fed = None

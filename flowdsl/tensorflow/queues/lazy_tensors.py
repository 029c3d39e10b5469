"""Tensors that each evaluation makes anew, and functions of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

R = TypeVar("R")

Structure: TypeAlias = Any
"""Tensors and ``LazyTensor``, in lists, tuples and dicts; or one of them."""


class Source:
    """What makes some tensors together, once in each evaluation."""

    def __init__(self, make: Callable[[], Structure]) -> None:
        self._make = make

    def made(self) -> Structure:
        """What it makes in the current evaluation."""
        memory = _made.get()
        if memory is None:
            raise RuntimeError("no evaluation is under way")
        if self not in memory:
            memory[self] = evaluate(self._make())
        return memory[self]


_made: ContextVar[dict[Source, Structure] | None] = ContextVar("_made", default=None)
"""What the sources have made in the current evaluation."""


class LazyTensor:
    """A tensor that every evaluation makes anew: the next batch, the next file's name.

    ``evaluate`` gives its value, beside those of others that are made with it. Within a function
    that is given to ``apply``, ``value()`` does.
    """

    def __init__(self, source: Source, spec: tf.TensorSpec, place: tuple[object, ...] = ()) -> None:
        self.source = source
        self.spec = spec
        """Its dtype, and its shape as far as it is known."""
        self._place = place

    @property
    def dtype(self) -> tf.DType:
        return self.spec.dtype

    @property
    def shape(self) -> tf.TensorShape:
        return self.spec.shape

    def value(self) -> tf.Tensor:
        """Its value in the current evaluation; by itself, that of an evaluation of its own."""
        if _made.get() is None:
            return evaluate(self)  # type: ignore[no-any-return]  # one tensor for one
        made = self.source.made()
        for key in self._place:
            made = made[key]
        return made  # type: ignore[no-any-return]  # the tensor at its place

    def __repr__(self) -> str:
        return f"Produced({self.spec.dtype.name}, {self.spec.shape})"


def evaluate(tensors: Structure) -> Structure:
    """The tensors of a structure, each ``LazyTensor`` by its value.

    All of them are of one evaluation: parts that are made together belong together. It may be
    called within a ``tf.function``, where it is computed in each call, or by itself.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import queues
    >>> number = queues.range_input_producer(3, shuffle=False, num_epochs=1)
    >>> row = queues.batch([queues.apply(number.dequeue)], batch_size=3)
    >>> with queues.running(row):
    ...     queues.evaluate(row).numpy().tolist()
    [0, 1, 2]
    """
    token = _made.set({}) if _made.get() is None else None
    try:
        return mapped(_value, tensors)
    finally:
        if token is not None:
            _made.reset(token)


def _value(x: object) -> tf.Tensor:
    return x.value() if isinstance(x, LazyTensor) else tf.convert_to_tensor(x)


def apply(function: Callable[..., Structure], *tensors: Structure) -> Structure:
    """What a function makes of the values of these tensors, in each evaluation.

    It is traced to find its outputs: tensors, in lists, tuples and dicts. The result has the same
    form, with a ``LazyTensor`` for each. This is where an input pipeline decodes and transforms
    what it reads.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import queues
    >>> number = queues.range_input_producer(4, shuffle=False, num_epochs=1)
    >>> square = queues.apply(lambda n: n * n, queues.apply(number.dequeue))
    >>> squares = queues.batch([square], batch_size=4)
    >>> with queues.running(squares):
    ...     queues.evaluate(squares).numpy().tolist()
    [0, 1, 4, 9]

    Source: graph mode of TensorFlow 1, where every function of tensors is one.
    """

    def make() -> Structure:
        return function(*(evaluate(one) for one in tensors))

    return produced(make)


def produced(make: Callable[[], Structure]) -> Structure:
    """What a function makes in each evaluation, in the form in which it gives it."""
    return parts_of(Source(make), specs_of(make))


def parts_of(source: Source, specs: Structure) -> Structure:
    """A ``LazyTensor`` for each of the tensors that a source makes."""
    return mapped_with_place(lambda place, spec: LazyTensor(source, spec, place), specs)


def specs_of(tensors: Structure | Callable[[], Structure]) -> Structure:
    """The specs of what an evaluation gives; nothing is run for it."""

    def make() -> Structure:
        return evaluate(tensors() if callable(tensors) else tensors)

    traced = tf.function(autograph=False)(make).get_concrete_function()
    return mapped(lambda x: tf.TensorSpec(x.shape, x.dtype), traced.structured_outputs)


def mapped(function: Callable[[Any], Any], structure: Structure) -> Structure:
    """The structure with a function applied to what is in it."""
    return mapped_with_place(lambda _, x: function(x), structure)


def mapped_with_place(
    function: Callable[[tuple[object, ...], Any], Any],
    structure: Structure,
    place: tuple[object, ...] = (),
) -> Structure:
    """As ``mapped``; the function is given the keys that lead to what it is applied to, too."""
    if isinstance(structure, Mapping):
        return {k: mapped_with_place(function, x, (*place, k)) for k, x in structure.items()}
    if isinstance(structure, (list, tuple)):
        parts = [mapped_with_place(function, x, (*place, k)) for k, x in enumerate(structure)]
        if isinstance(structure, list):
            return parts
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    return function(place, structure)


def flat(tensors: Structure) -> list[Any]:
    """What is in a structure, in order."""
    if isinstance(tensors, Mapping):
        return [x for part in tensors.values() for x in flat(part)]
    if isinstance(tensors, Sequence) and not isinstance(tensors, str | bytes):
        return [x for part in tensors for x in flat(part)]
    return [tensors]

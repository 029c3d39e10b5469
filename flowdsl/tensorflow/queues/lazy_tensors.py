"""Tensors that each evaluation computes again, and functions of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from flowdsl.errors import FlowError

R = TypeVar("R")

Structure: TypeAlias = Any
"""A tensor or ``LazyTensor``, or lists, tuples and dicts of them."""


class Source:
    """Computes several tensors together, once in each evaluation."""

    def __init__(self, make: Callable[[], Structure]) -> None:
        self._make = make

    def tensors(self) -> Structure:
        """Return the source's tensors in the current evaluation."""
        memory = _computed.get()
        if memory is None:
            raise RuntimeError("no evaluation is running")
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if self not in memory:
            memory[self] = graph, evaluate(self._make())
        computed_in, tensors = memory[self]
        if not _encloses(computed_in, graph):
            raise FlowError(
                "evaluate: a tensor was evaluated within a branch or a loop first, and then "
                "elsewhere, where its value does not exist; evaluate it before tf.cond or "
                "tf.while_loop, and use the value within, or pass it to queues.apply(...)"
            )
        return tensors


def _encloses(outer: object, graph: object) -> bool:
    """Return whether tensors of the graph ``outer`` can be used while ``graph`` is traced."""
    while graph is not None and graph is not outer:
        graph = getattr(graph, "outer_graph", None)
    return graph is outer


_computed: ContextVar[dict[Source, tuple[object, Structure]] | None] = ContextVar(
    "_computed", default=None
)
"""The tensors of sources that were computed in the current evaluation, and where: in which graph.

The graph is None outside of functions that are traced.
"""


class LazyTensor:
    """A tensor that every evaluation computes again: the next batch, the next file's name.

    ``evaluate`` returns its value, together with others of the same evaluation. Within a function
    that is passed to ``apply``, use ``value()``.
    """

    def __init__(self, source: Source, spec: tf.TensorSpec, path: tuple[object, ...] = ()) -> None:
        self.source = source
        self.spec = spec
        """The dtype, and the shape as far as it is known."""
        self._path = path
        """The keys that lead from the source's structure to this tensor."""

    @property
    def dtype(self) -> tf.DType:
        return self.spec.dtype

    @property
    def shape(self) -> tf.TensorShape:
        return self.spec.shape

    def value(self) -> tf.Tensor:
        """Return the value in the current evaluation, or else in an evaluation of its own."""
        if _computed.get() is None:
            return evaluate(self)  # type: ignore[no-any-return]  # one tensor for one
        part = self.source.tensors()
        for key in self._path:
            part = part[key]
        return part  # type: ignore[no-any-return]  # the tensor at its path

    def __repr__(self) -> str:
        return f"LazyTensor({self.spec.dtype.name}, {self.spec.shape})"


def evaluate(tensors: Structure) -> Structure:
    """Return a structure with each ``LazyTensor`` replaced by its value.

    All values are from one evaluation: tensors that are computed together belong together. This may
    be called within a ``tf.function``, where each call evaluates again, or outside of one. Within a
    branch of ``tf.cond``, a queue is read only if the branch runs.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import queues
    >>> number = queues.range_input_producer(3, shuffle=False, num_epochs=1)
    >>> row = queues.batch([queues.apply(number.dequeue)], batch_size=3)
    >>> with queues.running(row):
    ...     queues.evaluate(row).numpy().tolist()
    [0, 1, 2]
    """
    token = _computed.set({}) if _computed.get() is None else None
    try:
        return mapped(_value, tensors)
    finally:
        if token is not None:
            _computed.reset(token)


def _value(x: object) -> tf.Tensor:
    return x.value() if isinstance(x, LazyTensor) else dense(x)


def dense(x: object) -> tf.Tensor:
    """Convert a value to a tensor; raises TypeError for a tensor that queues cannot hold."""
    if isinstance(x, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(
            f"queues hold dense tensors, got {type(x).__name__}: convert it, with "
            f"tf.sparse.to_dense or RaggedTensor.to_tensor"
        )
    return tf.convert_to_tensor(x)


def apply(function: Callable[..., Structure], *tensors: Structure) -> Structure:
    """Return the result of a function of tensors, which each evaluation computes again.

    The function is traced to find its outputs: tensors, in lists, tuples and dicts. The result has
    the same form, with a ``LazyTensor`` for each tensor. Input pipelines decode and transform what
    they read this way.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import queues
    >>> number = queues.range_input_producer(4, shuffle=False, num_epochs=1)
    >>> square = queues.apply(lambda n: n * n, queues.apply(number.dequeue))
    >>> squares = queues.batch([square], batch_size=4)
    >>> with queues.running(squares):
    ...     queues.evaluate(squares).numpy().tolist()
    [0, 1, 4, 9]

    Source: graph mode of TensorFlow 1, where every function of tensors works like this.
    """

    def make() -> Structure:
        return function(*(evaluate(tensor) for tensor in tensors))

    return produced(make)


def produced(make: Callable[[], Structure]) -> Structure:
    """Return lazy tensors for the result of a function, in the result's form."""
    return parts_of(Source(make), specs_of(make))


def parts_of(source: Source, specs: Structure) -> Structure:
    """Return a ``LazyTensor`` for each tensor of a source."""
    return mapped_with_path(lambda path, spec: LazyTensor(source, spec, path), specs)


def specs_of(tensors: Structure | Callable[[], Structure]) -> Structure:
    """Return the specs of an evaluation's tensors, without running it."""

    def make() -> Structure:
        return evaluate(tensors() if callable(tensors) else tensors)

    traced = tf.function(autograph=False)(make).get_concrete_function()
    return mapped(lambda x: tf.TensorSpec(x.shape, x.dtype), traced.structured_outputs)


def mapped(function: Callable[[Any], Any], structure: Structure) -> Structure:
    """Apply a function to each leaf of a structure."""
    return mapped_with_path(lambda _, x: function(x), structure)


def mapped_with_path(
    function: Callable[[tuple[object, ...], Any], Any],
    structure: Structure,
    path: tuple[object, ...] = (),
) -> Structure:
    """Like ``mapped``, but the function is also called with the keys that lead to the leaf."""
    if isinstance(structure, Mapping):
        return {k: mapped_with_path(function, x, (*path, k)) for k, x in structure.items()}
    if isinstance(structure, (list, tuple)):
        parts = [mapped_with_path(function, x, (*path, k)) for k, x in enumerate(structure)]
        if isinstance(structure, list):
            return parts
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    return function(path, structure)


def flat(tensors: Structure) -> list[Any]:
    """Return the leaves of a structure, in order."""
    if isinstance(tensors, Mapping):
        return [x for part in tensors.values() for x in flat(part)]
    if isinstance(tensors, Sequence) and not isinstance(tensors, str | bytes):
        return [x for part in tensors for x in flat(part)]
    return [tensors]

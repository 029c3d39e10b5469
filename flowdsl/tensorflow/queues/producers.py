"""The beginning of an input pipeline: queues of rows, numbers and names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from flowdsl.tensorflow.queues.lazy_tensors import LazyTensor, Structure, apply, evaluate
from flowdsl.tensorflow.queues.runners import (
    MAX_CAPACITY,
    FilledQueue,
    any_rows,
    checked_count,
    checked_seed,
    refuse_shared,
    unique,
)


def match_filenames_once(pattern: object, name: str | None = None) -> tf.Variable:
    """List the files that match one pattern or several; they are matched once, in this call.

    Returns a variable with the names, sorted as by ``tf.io.matching_files``.

    Source: ``tf.train.match_filenames_once``.
    """
    return tf.Variable(
        tf.io.matching_files(pattern), trainable=False, name=name or "matching_filenames"
    )


def limit_epochs(tensor: Structure, num_epochs: int | None = None, name: str | None = None) -> Any:
    """Allow ``num_epochs`` evaluations of a tensor; the next one raises ``OutOfRangeError``.

    Raises:
        ValueError: ``num_epochs`` is not above 0.

    Source: ``tf.train.limit_epochs``.
    """
    if num_epochs is None:
        return tensor
    if isinstance(num_epochs, int) and num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    num_epochs = checked_count("num_epochs", num_epochs)
    with tf.init_scope():
        epochs = tf.Variable(0, dtype=tf.int64, trainable=False, name=f"{name or 'limit'}_epochs")

    def limited(value: tf.Tensor) -> tf.Tensor:
        counted = tf.raw_ops.ResourceCountUpTo(resource=epochs.handle, limit=num_epochs, T=tf.int64)
        with tf.control_dependencies([counted]):
            return tf.identity(value)

    return apply(limited, tensor)


def input_producer(
    input_tensor: Structure,
    element_shape: Sequence[int | None] | tf.TensorShape | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    summary_name: str | None = None,
    name: str | None = None,
    cancel_op: Callable[[], object] | None = None,
) -> FilledQueue:
    """Create a queue of the rows of a tensor, which repeat ``num_epochs`` times, or forever.

    With ``shuffle``, each epoch has another order. ``element_shape`` is the shape of a row, if it
    is unknown. ``summary_name`` names the queue's fill in statistics; ``cancel_op`` is called when
    the queue is stopped.

    Raises:
        ValueError: The tensor has no axis, or the shape of its rows is not fully known.

    Source: ``tf.train.input_producer``.
    """
    tensor = input_tensor if isinstance(input_tensor, LazyTensor) else _tensor(input_tensor)
    shape = tensor.shape
    if shape.rank is not None and shape.rank < 1:
        raise ValueError("input_producer needs a tensor of at least one dimension")
    row = tf.TensorShape(None if shape.rank is None else shape.as_list()[1:])
    row = row.merge_with(tf.TensorShape(element_shape))
    if not row.is_fully_defined():
        raise ValueError("Either `input_tensor` must have a fully defined shape or `element_shape`")
    capacity = checked_count("input_producer(): capacity", capacity, below=MAX_CAPACITY)
    checked_seed("input_producer(): seed", seed)
    refuse_shared("input_producer(): shared_name", shared_name)
    own_name = unique(name, "input_producer")
    queue = tf.queue.FIFOQueue(capacity, [tensor.dtype], [row])
    rows = limit_epochs(tensor, num_epochs, own_name)

    def fill() -> tf.Tensor | None:
        value = evaluate(rows)
        if shuffle:
            value = tf.random.shuffle(value, seed=seed)
        queue.enqueue_many([value])
        return any_rows(value)

    return FilledQueue(
        queue, [fill], own_name, capacity=capacity, summary_name=summary_name, cancel_op=cancel_op
    )


def range_input_producer(
    limit: Structure,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> FilledQueue:
    """Create a queue of the numbers from 0 up to ``limit``, like ``input_producer``.

    Source: ``tf.train.range_input_producer``.
    """
    own_name = unique(name, "range_input_producer")
    if isinstance(limit, (str, bytes)):
        raise TypeError(f"range_input_producer(): limit must be an int, got {limit!r}")
    numbers = apply(tf.range, limit) if isinstance(limit, LazyTensor) else tf.range(limit)
    return input_producer(
        numbers,
        element_shape=[],
        num_epochs=num_epochs,
        shuffle=shuffle,
        seed=seed,
        capacity=capacity,
        shared_name=shared_name,
        summary_name=f"fraction_of_{capacity}_full",
        name=own_name,
    )


def slice_input_producer(
    tensor_list: Sequence[Structure],
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> list[LazyTensor]:
    """Return the rows of several tensors at one random or ordered index, like ``input_producer``.

    The tensors must have the same number of rows.

    Raises:
        ValueError: There are no tensors, or their numbers of rows differ. If these are known only
            when the queue runs, reading raises ``tf.errors.InvalidArgumentError``.

    Source: ``tf.train.slice_input_producer``.
    """
    if not tensor_list:
        raise ValueError("Expected at least one tensor in slice_input_producer().")
    tensors = [x if isinstance(x, LazyTensor) else _tensor(x) for x in tensor_list]
    rows = tf.TensorShape([None])
    for tensor in tensors:
        first = tensor.shape.as_list()[0] if tensor.shape.rank else None
        rows = rows.merge_with(tf.TensorShape([first]))

    def counted() -> tf.Tensor:
        lengths = [tf.shape(evaluate(tensor))[0] for tensor in tensors]
        said = ["slice_input_producer(): the tensors have other numbers of rows:", *lengths]
        alike = tf.reduce_all([tf.equal(length, lengths[0]) for length in lengths])
        with tf.control_dependencies([tf.debugging.Assert(alike, said)]):
            return tf.identity(lengths[0])

    known = rows.as_list()[0]
    limit = apply(counted) if known is None else known
    numbers = range_input_producer(
        limit,
        num_epochs=num_epochs,
        shuffle=shuffle,
        seed=seed,
        capacity=capacity,
        shared_name=shared_name,
        name=unique(name, "slice_input_producer"),
    )
    number = apply(numbers.dequeue)

    def row(i: tf.Tensor) -> list[tf.Tensor]:
        return [tf.gather(evaluate(tensor), i) for tensor in tensors]

    parts: list[LazyTensor] = apply(row, number)
    return parts


def string_input_producer(
    string_tensor: Structure,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
    cancel_op: Callable[[], object] | None = None,
) -> FilledQueue:
    """Create a queue of text, such as the names of files, like ``input_producer``.

    Raises:
        ValueError: The list is empty. An empty tensor is an error when the queue runs.

    Source: ``tf.train.string_input_producer``.
    """
    message = "string_input_producer requires a non-null input tensor"
    if isinstance(string_tensor, (list, tuple)) and not string_tensor:
        raise ValueError(message)
    tensor = string_tensor if isinstance(string_tensor, LazyTensor) else _tensor(string_tensor)
    if tensor.dtype != tf.string:
        raise ValueError(f"string_input_producer takes text, got {tensor.dtype.name}")

    def non_empty(value: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(tf.size(value) > 0, [message])]):
            return tf.identity(value)

    return input_producer(
        apply(non_empty, tensor),
        element_shape=[],
        num_epochs=num_epochs,
        shuffle=shuffle,
        seed=seed,
        capacity=capacity,
        shared_name=shared_name,
        summary_name=f"fraction_of_{capacity}_full",
        name=unique(name, "string_input_producer"),
        cancel_op=cancel_op,
    )


def _tensor(value: object) -> tf.Tensor:
    return value if isinstance(value, tf.Variable) else tf.convert_to_tensor(value)

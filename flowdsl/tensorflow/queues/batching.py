"""The end of an input pipeline: batches, shuffled or not, of one source or of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from flowdsl.tensorflow.queues.lazy_tensors import (
    LazyTensor,
    Source,
    Structure,
    dense,
    evaluate,
    parts_of,
    specs_of,
)
from flowdsl.tensorflow.queues.runners import (
    MAX_CAPACITY,
    Fill,
    FilledQueue,
    any_rows,
    checked_count,
    checked_seed,
    refuse_shared,
    unique,
)

Shapes = Sequence[Sequence[int | None] | tf.TensorShape]


def batch(
    tensors: Structure,
    batch_size: int,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch the values of tensors from consecutive evaluations.

    ``tensors`` is a list or a dict, and so is the result: it has a ``LazyTensor`` for each tensor;
    for a list of one, it is the ``LazyTensor`` itself. ``num_threads`` threads evaluate them into a
    queue of ``capacity`` examples. With ``enqueue_many``, each evaluation returns several examples,
    along the first axis.

    Shapes must be fully known, from the tensors or by ``shapes``. With ``dynamic_pad``, only ranks
    must be known: examples are padded on the right, with zeros or empty text, to the largest shape
    in their batch. A remainder at the end is dropped, unless ``allow_smaller_final_batch``.

    Raises:
        ValueError: Shapes are unknown, or there are no tensors.

    Source: ``tf.train.batch``.
    """
    return _batched(
        "batch",
        [tensors],
        batch_size,
        threads=num_threads,
        capacity=capacity,
        enqueue_many=enqueue_many,
        shapes=shapes,
        dynamic_pad=dynamic_pad,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


def maybe_batch(
    tensors: Structure,
    keep_input: Structure,
    batch_size: int,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like ``batch``, but only for examples that are kept.

    ``keep_input`` is a bool for each evaluation. With ``enqueue_many``, it may be a vector with a
    bool for each example.

    Source: ``tf.train.maybe_batch``.
    """
    return _batched(
        "maybe_batch",
        [tensors],
        batch_size,
        keep_input=keep_input,
        threads=num_threads,
        capacity=capacity,
        enqueue_many=enqueue_many,
        shapes=shapes,
        dynamic_pad=dynamic_pad,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


def batch_join(
    tensors_list: Sequence[Structure],
    batch_size: int,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like ``batch``, for several lists or dicts of tensors, each evaluated by its own thread.

    Source: ``tf.train.batch_join``.
    """
    return _batched(
        "batch_join",
        tensors_list,
        batch_size,
        capacity=capacity,
        enqueue_many=enqueue_many,
        shapes=shapes,
        dynamic_pad=dynamic_pad,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


def maybe_batch_join(
    tensors_list: Sequence[Structure],
    keep_input: Structure,
    batch_size: int,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like ``batch_join``, for examples that are kept; see ``maybe_batch`` for ``keep_input``.

    Source: ``tf.train.maybe_batch_join``.
    """
    return _batched(
        "maybe_batch_join",
        tensors_list,
        batch_size,
        keep_input=keep_input,
        capacity=capacity,
        enqueue_many=enqueue_many,
        shapes=shapes,
        dynamic_pad=dynamic_pad,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


def shuffle_batch(
    tensors: Structure,
    batch_size: int,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like ``batch``, with examples drawn at random from the queue.

    At least ``min_after_dequeue`` examples stay in the queue until its end, so that there is
    something to draw from.

    Source: ``tf.train.shuffle_batch``.
    """
    return _batched(
        "shuffle_batch",
        [tensors],
        batch_size,
        threads=num_threads,
        capacity=capacity,
        shuffled=_Shuffled(min_after_dequeue, seed),
        enqueue_many=enqueue_many,
        shapes=shapes,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


def maybe_shuffle_batch(
    tensors: Structure,
    batch_size: int,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Structure,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like ``shuffle_batch``, for examples that are kept, as in ``maybe_batch``.

    Source: ``tf.train.maybe_shuffle_batch``.
    """
    return _batched(
        "maybe_shuffle_batch",
        [tensors],
        batch_size,
        keep_input=keep_input,
        threads=num_threads,
        capacity=capacity,
        shuffled=_Shuffled(min_after_dequeue, seed),
        enqueue_many=enqueue_many,
        shapes=shapes,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


def shuffle_batch_join(
    tensors_list: Sequence[Structure],
    batch_size: int,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like ``shuffle_batch``, for several lists or dicts of tensors, each with its own thread.

    Source: ``tf.train.shuffle_batch_join``.
    """
    return _batched(
        "shuffle_batch_join",
        tensors_list,
        batch_size,
        capacity=capacity,
        shuffled=_Shuffled(min_after_dequeue, seed),
        enqueue_many=enqueue_many,
        shapes=shapes,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


def maybe_shuffle_batch_join(
    tensors_list: Sequence[Structure],
    batch_size: int,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Structure,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Shapes | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Like ``shuffle_batch_join``, for examples that are kept, as in ``maybe_batch``.

    Source: ``tf.train.maybe_shuffle_batch_join``.
    """
    return _batched(
        "maybe_shuffle_batch_join",
        tensors_list,
        batch_size,
        keep_input=keep_input,
        capacity=capacity,
        shuffled=_Shuffled(min_after_dequeue, seed),
        enqueue_many=enqueue_many,
        shapes=shapes,
        smaller=allow_smaller_final_batch,
        shared_name=shared_name,
        name=name,
    )


# -- shared implementation -------------------------------------------------------------------------


_ALL = object()
"""In place of ``keep_input``: all examples are kept."""


class _Shuffled(NamedTuple):
    """The arguments of a batch that is drawn from the queue at random."""

    least: int
    """The number of examples that stay in the queue until its end."""
    seed: int | None


def _batched(
    function: str,
    tensors_list: Sequence[Structure],
    batch_size: int,
    *,
    keep_input: Structure | None = _ALL,
    capacity: int,
    enqueue_many: bool,
    shapes: Shapes | None,
    smaller: bool,
    shared_name: str | None,
    name: str | None,
    threads: int = 1,
    dynamic_pad: bool = False,
    shuffled: _Shuffled | None = None,
) -> Structure:
    batch_size = checked_count(f"{function}(): batch_size", batch_size, below=MAX_CAPACITY)
    capacity = checked_count(f"{function}(): capacity", capacity, below=MAX_CAPACITY)
    threads = checked_count(f"{function}(): num_threads", threads)
    refuse_shared(f"{function}(): shared_name", shared_name)
    least = 0
    if shuffled is not None:
        checked_seed(f"{function}(): seed", shuffled.seed)
        least = checked_count(f"{function}(): min_after_dequeue", shuffled.least, 0)
        checked_count(f"{function}(): capacity, above min_after_dequeue,", capacity, least + 1)
    own_name = unique(name, function)
    sources = _Examples.of(function, tensors_list)
    keep = None if keep_input is _ALL else _checked_keep(function, keep_input, enqueue_many)
    tensors = len(sources[0].specs)
    if shapes and len(shapes) != tensors:
        raise ValueError(
            f"{function}(): shapes must have one shape for each of {tensors} tensor(s), got "
            f"{len(shapes)}"
        )
    dtypes, rows = _dtypes(sources), _shapes(sources, shapes, enqueue_many, dynamic_pad)
    queue = _queue(dtypes, rows, capacity, dynamic_pad, shuffled)
    fills = [_filling(function, queue, source, keep, enqueue_many) for source in sources] * threads
    over = "" if shuffled is None else f"over_{least}_"
    filled = FilledQueue(
        queue,
        fills,
        own_name,
        capacity=capacity,
        least=least,
        summary_name=f"fraction_{over}of_{capacity - least}_full",
    )
    take = _taking(filled, batch_size, smaller)
    specs = [
        tf.TensorSpec([None if smaller else batch_size, *row.as_list()], dtype)
        for row, dtype in zip(rows, dtypes, strict=True)
    ]
    parts = parts_of(Source(take), specs)
    return sources[0].formed(parts)


class _Examples:
    """A list or dict of tensors, whose evaluations are examples."""

    def __init__(self, tensors: Structure) -> None:
        self._names = list(tensors) if isinstance(tensors, Mapping) else None
        self.tensors = [_as_tensor(x) for x in (tensors.values() if self._names else list(tensors))]
        self.specs: list[tf.TensorSpec] = specs_of(self.tensors)

    @staticmethod
    def of(function: str, tensors_list: Sequence[Structure]) -> list[_Examples]:
        if not tensors_list:
            raise ValueError(f"Expected at least one input in {function}().")
        for tensors in tensors_list:
            if not isinstance(tensors, (list, tuple, Mapping)):
                raise TypeError(f"{function}() takes a list or dict of tensors, got {tensors!r}")
            if not tensors:
                raise ValueError(f"Expected at least one tensor in {function}().")
        first = tensors_list[0]
        for other in tensors_list[1:]:
            if isinstance(first, Mapping) != isinstance(other, Mapping):
                raise ValueError(f"{function}(): some inputs are dicts, and some are lists")
            if isinstance(first, Mapping) and {*first} != {*other}:
                raise ValueError(
                    f"{function}(): the inputs have other keys: {sorted(first, key=str)} and "
                    f"{sorted(other, key=str)}"
                )
            ours, theirs = (getattr(tensors, "_fields", ()) for tensors in (first, other))
            if ours and theirs and ours != theirs:
                raise ValueError(
                    f"{function}(): the inputs have other names: {list(ours)} and {list(theirs)}"
                )
            if len(first) != len(other):
                raise ValueError(f"{function}(): the inputs have other numbers of tensors")
        if isinstance(first, Mapping):  # in this order ``shapes`` are passed
            keys = sorted(first, key=str)
            return [_Examples({key: each[key] for key in keys}) for each in tensors_list]
        return [_Examples(each) for each in tensors_list]

    def formed(self, parts: list[LazyTensor]) -> Structure:
        """Return the results in the form of the tensors."""
        if self._names is not None:
            return dict(zip(self._names, parts, strict=True))
        return parts[0] if len(parts) == 1 else parts


def _as_tensor(x: object) -> object:
    if isinstance(x, FilledQueue):
        from flowdsl.tensorflow.queues.lazy_tensors import apply

        return apply(x.dequeue)
    return x if isinstance(x, LazyTensor | tf.Tensor | tf.Variable) else dense(x)


def _checked_keep(function: str, keep_input: Structure, enqueue_many: bool) -> Structure:
    if keep_input is None:
        raise ValueError(f"{function}(): keep_input must be a bool or bools, got None")
    keep = _as_tensor(keep_input)
    spec = specs_of(keep)
    if spec.dtype != tf.bool:
        raise TypeError(f"{function}(): keep_input must be bool, got {spec.dtype.name}")
    shape = spec.shape
    if shape.rank is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if shape.rank > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    if shape.rank == 1 and not enqueue_many:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    return keep


def _dtypes(sources: Sequence[_Examples]) -> list[tf.DType]:
    first = [spec.dtype for spec in sources[0].specs]
    for source in sources[1:]:
        other = [spec.dtype for spec in source.specs]
        if other != first:
            raise TypeError(f"Expected types to be consistent: {first} vs. {other}.")
    return first


def _shapes(
    sources: Sequence[_Examples], shapes: Shapes | None, enqueue_many: bool, dynamic_pad: bool
) -> list[tf.TensorShape]:
    """Return the shape of each tensor of an example, as far as all sources agree."""
    if shapes:
        rows = [tf.TensorShape(shape) for shape in shapes]
    else:
        rows = []
        for k in range(len(sources[0].specs)):
            each = [source.specs[k].shape for source in sources]
            if any(shape.rank is None for shape in each):
                raise ValueError(f"Cannot infer Tensor's rank: {sources[0].tensors[k]!r}")
            if enqueue_many:
                each = [tf.TensorShape(shape.as_list()[1:]) for shape in each]
            rows.append(_merged(each))
    if not dynamic_pad and not all(row.is_fully_defined() for row in rows):
        raise ValueError(f"All shapes must be fully defined: {rows}")
    return rows


def _merged(shapes: Sequence[tf.TensorShape]) -> tf.TensorShape:
    first = shapes[0].as_list()
    for other in shapes[1:]:
        if other.rank != len(first):
            raise ValueError(f"the inputs have shapes of other ranks: {shapes}")
        first = [a if a == b else None for a, b in zip(first, other.as_list(), strict=True)]
    return tf.TensorShape(first)


def _queue(
    dtypes: list[tf.DType],
    shapes: list[tf.TensorShape],
    capacity: int,
    dynamic_pad: bool,
    shuffled: _Shuffled | None,
) -> tf.queue.QueueBase:
    with tf.init_scope(), tf.device("/cpu:0"):
        if shuffled is not None:
            return tf.queue.RandomShuffleQueue(
                capacity, shuffled.least, dtypes, shapes, seed=shuffled.seed
            )
        kind = tf.queue.PaddingFIFOQueue if dynamic_pad else tf.queue.FIFOQueue
        return kind(capacity, dtypes, shapes)


def _filling(
    function: str, queue: tf.queue.QueueBase, source: _Examples, keep: Structure | None, many: bool
) -> Fill:
    """Return a function that enqueues one evaluation of a source."""

    def put(values: list[tf.Tensor]) -> tf.Tensor | None:
        if many:
            queue.enqueue_many(values)
            return any_rows(values[0])
        queue.enqueue(values)
        return None

    def fill() -> tf.Tensor | None:
        values, kept = evaluate((source.tensors, True if keep is None else keep))
        if keep is None:
            return put(values)
        if kept.shape.rank == 1:
            checks = [_one_for_each_row(function, value, kept) for value in values]
            with tf.control_dependencies(checks):
                return put([tf.boolean_mask(value, kept) for value in values])
        tf.cond(kept, lambda: _put_in_branch(put, values), lambda: tf.constant(False))
        return kept  # type: ignore[no-any-return]  # a bool

    return fill


def _one_for_each_row(function: str, value: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """Return the check that ``keep_input`` has a bool for each row; ``boolean_mask`` has none."""
    rows, flags = tf.shape(value)[0], tf.shape(kept)[0]
    said = [f"{function}(): keep_input needs a bool for each row; rows and bools are", rows, flags]
    return tf.debugging.Assert(tf.equal(rows, flags), said)


def _put_in_branch(put: Callable[[list[tf.Tensor]], object], values: list[tf.Tensor]) -> tf.Tensor:
    """Put the values; return a tensor, as each branch of ``tf.cond`` must."""
    put(values)
    return tf.constant(True)


def _taking(filled: FilledQueue, batch_size: int, smaller: bool) -> Callable[[], list[tf.Tensor]]:
    """Return a function that dequeues a batch."""

    def take() -> list[tf.Tensor]:
        taken = filled.dequeue_up_to(batch_size) if smaller else filled.dequeue_many(batch_size)
        return list(taken) if isinstance(taken, (list, tuple)) else [taken]

    return take

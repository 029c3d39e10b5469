"""The queues of TensorFlow 1's input pipelines: ``tf.train.batch`` and the like, on TensorFlow 2.

    names = queues.string_input_producer(files, num_epochs=2)
    image, label = queues.apply(read, queues.apply(names.dequeue))
    batches = queues.shuffle_batch([image, label], 32, capacity=500, min_after_dequeue=200)

    @tf.function
    def step():
        images, labels = queues.evaluate(batches)
        ...

    with queues.running(batches):
        ...

Functions, arguments and defaults are the same as in ``tf.train``. A pipeline consists of
``LazyTensor`` objects. Each evaluation computes them again, as each run of a session computed
every tensor of a graph. Threads run only within ``running``; there are no global collections.

lazy_tensors.py  tensors that each evaluation computes again, and functions applied to them
runners.py       queues that threads fill, and running them
producers.py     the beginning of a pipeline: rows, numbers, names
batching.py      the end of a pipeline: batches, shuffled or not, of one or several sources

Source: "Inputs and Readers" of TensorFlow 1.
"""

from __future__ import annotations

from flowdsl.tensorflow.queues.batching import (
    batch,
    batch_join,
    maybe_batch,
    maybe_batch_join,
    maybe_shuffle_batch,
    maybe_shuffle_batch_join,
    shuffle_batch,
    shuffle_batch_join,
)
from flowdsl.tensorflow.queues.lazy_tensors import LazyTensor, apply, evaluate
from flowdsl.tensorflow.queues.producers import (
    input_producer,
    limit_epochs,
    match_filenames_once,
    range_input_producer,
    slice_input_producer,
    string_input_producer,
)
from flowdsl.tensorflow.queues.runners import FilledQueue, running

__all__ = [
    "FilledQueue",
    "LazyTensor",
    "apply",
    "batch",
    "batch_join",
    "evaluate",
    "input_producer",
    "limit_epochs",
    "match_filenames_once",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "range_input_producer",
    "running",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "string_input_producer",
]

"""Undocumented behaviour of TensorFlow that QueueInput's speed relies on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow.inputs import (
    FeedInput,
    InputSource,
    QueueInput,
    StagingInput,
    TFDatasetInput,
)
from tests.tensorflow.rows import batch

SIZE = 1024


def at_offset(offset: int) -> NDArray[np.float32]:
    """Return ones, ``offset`` bytes after a multiple of 64."""
    memory = np.empty(4 * SIZE + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    array = memory[start : start + 4 * SIZE].view(np.float32)
    array[:] = 1
    return array


def queues() -> list[tf.queue.QueueBase]:
    return [
        tf.queue.FIFOQueue(4, [tf.float32], [(SIZE,)]),
        tf.queue.PaddingFIFOQueue(4, [tf.float32], [(None,)]),
        tf.queue.FIFOQueue(4, [tf.float32]),
    ]


def through(queue: tf.queue.QueueBase, array: NDArray[np.float32]) -> tf.Tensor:
    tf.raw_ops.QueueEnqueueV2(handle=queue.queue_ref, components=[array])
    array[0] = 7
    return tf.raw_ops.QueueDequeueV2(handle=queue.queue_ref, component_types=[tf.float32])[0]


@pytest.mark.parametrize("kind", range(3))
def test_an_aligned_array_is_not_copied(kind: int) -> None:
    assert float(through(queues()[kind], at_offset(0))[0]) == 7


@pytest.mark.parametrize("kind", range(3))
def test_any_other_array_is_copied(kind: int) -> None:
    assert float(through(queues()[kind], at_offset(4))[0]) == 1


def test_tensorflow_does_not_write_into_the_array() -> None:
    queue, array = queues()[0], at_offset(0)

    @tf.function(input_signature=[tf.TensorSpec((), tf.resource)])
    def step(handle: tf.Tensor) -> tf.Tensor:
        (x,) = tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.float32])
        x = tf.ensure_shape(x, (SIZE,))
        return tf.reduce_sum(tf.nn.relu(-(x * 2.0 + 1.0)) + tf.tanh(x))

    tf.raw_ops.QueueEnqueueV2(handle=queue.queue_ref, components=[array])
    step(queue.queue_ref)
    assert (array == 1).all()


def test_the_array_lives_as_long_as_it_is_queued() -> None:
    queue = queues()[0]
    tf.raw_ops.QueueEnqueueV2(handle=queue.queue_ref, components=[at_offset(0) * 3])
    _others = [np.zeros(SIZE, np.float32) for _ in range(50)]
    got = tf.raw_ops.QueueDequeueV2(handle=queue.queue_ref, component_types=[tf.float32])[0]
    assert (got.numpy() == 3).all()


# -- from a worker's memory ------------------------------------------------------------------------


SPEC = [tf.TensorSpec((64, 1000), tf.float32), tf.TensorSpec((100_000,), tf.uint8)]

INPUTS: dict[str, Callable[[fl.Flow[object]], InputSource]] = {
    "queue": lambda flow: QueueInput(flow, spec=SPEC),
    "feed": lambda flow: FeedInput(flow, spec=SPEC),
    "dataset input": lambda flow: TFDatasetInput(flow, spec=SPEC),
    "staged": lambda flow: StagingInput(QueueInput(flow, spec=SPEC)),
}


def of_a_slab(tensor: tf.Tensor) -> NDArray[np.uint8] | None:
    """Return the bytes of a tensor if they are in the memory that a worker filled."""
    content = np.frombuffer(memoryview(tensor), np.uint8)  # type: ignore[arg-type]  # it is one
    start = content.__array_interface__["data"][0]
    maps = Path("/proc/self/maps").read_text()
    filled = re.findall(r"^(\w+)-(\w+) .*memfd:flowdsl", maps, re.MULTILINE)
    mapped = ((int(low, 16), int(high, 16)) for low, high in filled)
    return content if any(low <= start < high for low, high in mapped) else None


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "queue" else pytest.mark.long) for name in INPUTS],
)
def test_worker_arrays_enter_the_graph_without_a_copy(name: str) -> None:
    with INPUTS[name](fl.from_range(10).map(batch).prefetch(procs=1)) as source:
        source.reset()
        step = tf.function(input_signature=source.signature)(source.tensors)
        for i in range(10):
            for tensor in step(*source.next_args()):
                content = of_a_slab(tensor)
                assert content is not None
                assert (tensor.numpy() == i).all()


@pytest.mark.parametrize(
    "jit",
    [pytest.param(False, id="plain"), pytest.param(True, id="XLA", marks=pytest.mark.long)],
)
def test_tensorflow_does_not_write_into_worker_memory(jit: bool) -> None:
    state = tf.Variable(tf.zeros((64, 1000)))

    @tf.function(jit_compile=jit)
    def chain(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        state.assign_add(x)
        z = tf.nn.relu(tf.tanh(-(x * 2.0 + 1.0)) + x)
        return tf.reduce_sum(z + state) + tf.cast(tf.reduce_max(y), tf.float32)

    with QueueInput(fl.from_range(10).map(batch).prefetch(procs=1), spec=SPEC) as source:
        source.reset()
        for i in range(10):
            x, y = source.tensors(*source.next_args())
            before = of_a_slab(x), of_a_slab(y)
            chain(x, y)
            for content, kind in zip(before, (np.float32, np.uint8), strict=True):
                assert content is not None
                assert (content.view(kind) == i).all()

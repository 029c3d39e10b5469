"""What TensorFlow does not document, and QueueInput's speed rests on: a canary for new versions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

SIZE = 1024


def at_offset(offset: int) -> NDArray[np.float32]:
    """Ones, that many bytes after a multiple of 64."""
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

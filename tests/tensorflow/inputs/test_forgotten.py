"""A garbage-collected input leaves nothing behind, wherever it is collected."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput
from tests.waiting import eventually

FLOW = fl.from_range(9).map(np.int64)


def feeders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "QueueInput"]


def test_pump_thread_ends() -> None:
    source = QueueInput(FLOW.repeat())
    source.reset()
    source.next_args()
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None
    assert eventually(lambda: not feeders())


def test_flow_error_does_not_keep_the_input_alive() -> None:
    source = QueueInput(FLOW.map(lambda i: np.int64(1) if i < 2 else np.int64(1 // 0)))
    source.reset()
    source.next_args(2)
    with pytest.raises(fl.ElementError):
        source.next_args()
    assert eventually(lambda: not feeders())  # the pass is over, and so is its thread
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None


def test_queue_may_be_collected_while_a_step_is_traced() -> None:
    held = [QueueInput(FLOW.repeat(), capacity=2)]
    held[0].reset()
    held[0].next_args(2)  # no step runs, so there is no room: the thread waits in TensorFlow
    queue = held[0].queue

    @tf.function(input_signature=[tf.TensorSpec((), tf.int64)])
    def step(x: tf.Tensor) -> tf.Tensor:
        held.clear()
        gc.collect()
        assert eventually(lambda: not feeders())
        with tf.init_scope():
            assert bool(queue.is_closed())  # now, not whenever a step runs
        return x + 1

    assert int(step(tf.constant(1, tf.int64))) == 2

"""A callback fails at the end of an epoch.

Its error is raised unchanged; the input is closed, and no process of the flow is left.
"""

from __future__ import annotations

import multiprocessing

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import Callback, ModelDesc, QueueInputTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


class Upload(Callback):
    def trigger_epoch(self) -> None:
        raise ConnectionError("the server of results is not there")


config = TrainConfig(
    fl.from_items([np.float32(1)] * 8).map(abs).batch(2).prefetch(procs=1),
    model=Mean,
    optimizer=tf.keras.optimizers.SGD,
    callbacks=[Upload()],
    extra_callbacks=(),
    monitors=(),
)
try:
    QueueInputTrainer(config).train()
finally:
    print("processes that are left:", len(multiprocessing.active_children()))

# Seen:
# processes that are left: 0
# ConnectionError: the server of results is not there

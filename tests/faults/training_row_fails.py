"""A row fails in a worker while a model trains on the rows before it.

The steps of the complete elements before it are run. The error names the operator and the row.
"""

from __future__ import annotations

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


class Tell(Callback):
    def trigger_step(self) -> None:
        print("step", self.trainer.global_step)


def inverse(i: int) -> np.float32:
    return np.float32(1 / (5 - i))


config = TrainConfig(
    fl.from_range(8).map(inverse).batch(2).prefetch(procs=1),
    model=Mean,
    optimizer=tf.keras.optimizers.SGD,
    callbacks=[Tell()],
    extra_callbacks=(),
    monitors=(),
)
QueueInputTrainer(config).train()

# Seen:
# step 1
# step 2
# flowdsl.errors.ElementError: map(inverse) failed on element 5 (row 5 of from_range(8)):
# ZeroDivisionError('division by zero'); the
# element was 5

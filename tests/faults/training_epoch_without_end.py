"""A flow is endless, and the length of an epoch is not set.

This is refused before anything runs, and the error suggests a correction.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


config = TrainConfig(
    fl.from_items([np.float32(1)] * 8).batch(2).repeat(),
    model=Mean,
    optimizer=tf.keras.optimizers.SGD,
)
SimpleTrainer(config)

# Seen:
# flowdsl.errors.InvalidArgument: TrainConfig: steps_per_epoch must be given: repeat() never ends;
# put .take(n) after it

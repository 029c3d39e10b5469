"""`logdir` is a file, or cannot be created.

This is refused before the first step.
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


def train(logdir: str) -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        extra_callbacks=(),
        max_epoch=2,
        logdir=logdir,
    )
    SimpleTrainer(config).train()


with open("results", "w") as file:
    file.write("of the last training")
train("results/today")

# Seen:
# flowdsl.errors.InvalidArgument: TrainConfig: logdir must be a folder that can be written, got
# 'results/today': Not a directory

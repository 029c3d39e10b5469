"""A checkpoint belongs to another model: here, one whose variable has another shape.

Training does not begin anew and does not load a part. The error names the checkpoint.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc, ModelSaver, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.at = tf.Variable(np.zeros(size, np.float32))

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x[0]) ** 2)


def train(size: int) -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=lambda: Mean(size),
        optimizer=tf.keras.optimizers.SGD,
        callbacks=[ModelSaver()],
        extra_callbacks=(),
        monitors=(),
        max_epoch=1,
        logdir="out",
    )
    SimpleTrainer(config).train()


train(3)
train(4)

# Seen:
# flowdsl.errors.StateMismatch: out/checkpoints/ckpt-4 does not fit this model and optimizer: use
# the ones it was saved with, or another logdir (...

"""The loss of a step is NaN or infinite.

Training ends at that step. The error names the rows of its batch, and the code that reads it again.
With ``non_finite="count"`` training continues, and counts such steps.
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


rows = [np.float32(1), np.float32(2), np.float32("nan"), np.float32(4)]
flow = fl.from_items(rows).shuffle(seed=1).batch(2)
config = TrainConfig(
    flow, model=Mean, optimizer=tf.keras.optimizers.SGD, extra_callbacks=(), monitors=()
)
SimpleTrainer(config).train()

# Seen:
# flowdsl.tensorflow.train.nan_check.NonFiniteLoss: the loss of step ..., in epoch 1, is nan; its
# elements were made of row ... of from_items(4 items), row ... of from_items(4 items); read again
# by flow.at(..., epoch=0). To train on and count such steps: TrainConfig(non_finite='count')

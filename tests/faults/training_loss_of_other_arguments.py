"""The arguments of the loss do not match the components of an element.

This is refused before anything runs; the error lists both.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc, SimpleTrainer, TrainConfig


class Line(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.slope = tf.Variable(0.0)

    def loss(self, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(weight * (self.slope * x - y) ** 2)


rows = [(np.float32(x), np.float32(2 * x)) for x in range(8)]
config = TrainConfig(fl.from_items(rows).batch(2), model=Line, optimizer=tf.keras.optimizers.SGD)
SimpleTrainer(config)

# Seen:
# flowdsl.errors.InvalidArgument: Line.loss(x: 'tf.Tensor', y: 'tf.Tensor', weight: 'tf.Tensor') ->
# 'tf.Tensor' does not take an element, whose components are (0, 1): missing a required argument:
# 'weight'

"""A model has no variables that are trained.

It is refused before anything runs: a training of nothing looks like one that does not learn.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc, SimpleTrainer, TrainConfig


class Nothing(ModelDesc):
    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(x)


config = TrainConfig(
    fl.from_items([np.float32(1)] * 8).batch(2),
    model=Nothing,
    optimizer=tf.keras.optimizers.SGD,
)
SimpleTrainer(config)

# Seen:
# flowdsl.errors.InvalidFlow: Nothing has no trainable variables: derive it from ModelDesc, which
# finds the variables of Keras layers, and build these with an input shape (tf.keras.Input)

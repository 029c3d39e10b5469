"""The components of a flow have other names than the arguments of the model's loss.

This is refused before the first step: named components are passed by name, so an image never
becomes a label.
"""

from __future__ import annotations

import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc, SimpleTrainer, TrainConfig


class Line(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.slope = tf.Variable(0.0)

    def loss(self, x: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.slope * x - label) ** 2)


flow = fl.from_items([{"x": 1.0, "y": 2.0}]).batch(1)
SimpleTrainer(TrainConfig(dataflow=flow, model=Line, optimizer=tf.keras.optimizers.SGD))

# Seen:
# flowdsl.errors.InvalidArgument: Line.loss(x: 'tf.Tensor', label: 'tf.Tensor') -> 'tf.Tensor' does
# not take an element, whose components are (x, y): it has no argument 'y'

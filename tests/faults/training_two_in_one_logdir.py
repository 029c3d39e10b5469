"""Two trainings have the same `logdir`.

The second is refused before its first step: they would replace each other's checkpoints. The first
continues.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import Callback, ModelDesc, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


class TrainAgain(Callback):
    def trigger_epoch(self) -> None:
        try:
            train()
        except fl.FlowError as error:
            print("the second:", error)


def train(*callbacks: Callback) -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        callbacks=callbacks,
        monitors=(),
        extra_callbacks=(),
        max_epoch=1,
        logdir="out",
    )
    SimpleTrainer(config).train()


train(TrainAgain())
print("the first has ended")

# Seen:
# the second: TrainConfig: logdir: another training is writing to 'out'; use another logdir, or wait
# until it has ended
# the first has ended

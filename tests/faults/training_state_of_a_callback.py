"""The state of a callback cannot be stored in a checkpoint.

This is refused before the first step, since the steps up to the first checkpoint would be lost. The
error names the callback and the value.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import Callback, ModelDesc, ModelSaver, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


class Best(Callback):
    def state_dict(self) -> dict[str, object]:
        return {"best": {"loss": np.float32(0.5)}}


def train() -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        callbacks=[Best(), ModelSaver()],
        monitors=(),
        extra_callbacks=(),
        max_epoch=2,
        logdir="out",
    )
    SimpleTrainer(config).train()


train()

# Seen:
# flowdsl.errors.InvalidArgument: Best.state_dict: return what a checkpoint can store (dicts with
# text as keys, lists, text, numbers, True, False, None); the state['best']['loss'] is
# np.float32(0.5)

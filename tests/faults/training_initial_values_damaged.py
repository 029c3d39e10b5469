"""A file of initial values is damaged, or has a value beyond the range of its variable.

Both are refused before any variable is changed, and the error names the file or the variable.
"""

from __future__ import annotations

from pathlib import Path

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


def train(initial: str | dict[str, float]) -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        session_init=initial,
        monitors=(),
        extra_callbacks=(),
        max_epoch=1,
    )
    SimpleTrainer(config).train()


try:
    train({"at": 1e300})
except fl.FlowError as error:
    print(error)
np.savez("values.npz", at=np.float32(0.5))
Path("values.npz").write_bytes(Path("values.npz").read_bytes()[:200])
train("values.npz")

# Seen:
# TrainConfig: session_init: a value of 'at' is beyond the range of float32
# flowdsl.errors.SourceError: TrainConfig: session_init: 'values.npz', a file of 200 bytes, is not
# an .npz file of arrays of numbers, or it is damaged (File is not a zip file)

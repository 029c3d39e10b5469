"""The file of scalars in `logdir` is damaged: here, it is truncated.

Training does not begin, so that the rest of the file is not replaced.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import JSONWriter, ModelDesc, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


Path("out").mkdir()
Path("out/stats.json").write_text('[{"epoch_num": 1, "glob')
config = TrainConfig(
    fl.from_items([np.float32(1)] * 8).batch(2),
    model=Mean,
    optimizer=tf.keras.optimizers.SGD,
    extra_callbacks=(),
    monitors=[JSONWriter()],
    logdir="out",
)
SimpleTrainer(config).train()

# Seen:
# flowdsl.errors.SourceError: out/stats.json is not a list of epochs: ...; move it away to begin a
# new one

"""The disk is full while scalars are written; here, files are limited to 300 bytes.

The error names the file and the writer. The scalars that were written before are kept.
"""

from __future__ import annotations

import resource

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import (
    Callback,
    JSONWriter,
    ModelDesc,
    SimpleTrainer,
    TrainConfig,
    read_stats,
)


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


class FillUp(Callback):
    def after_epoch(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))


def train() -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        callbacks=[FillUp()],
        monitors=[JSONWriter()],
        extra_callbacks=(),
        max_epoch=9,
        logdir="out",
    )
    SimpleTrainer(config).train()


try:
    train()
finally:
    print("epochs that are kept:", len(read_stats("out")))

# Seen:
# epochs that are kept: 2
# flowdsl.errors.FlowError: JSONWriter: 'out/stats.json' cannot be written: File too large

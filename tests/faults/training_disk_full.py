"""The disk is full while a checkpoint is written; here, after the first epoch.

The error names the last good checkpoint. Once there is room, the program goes on from it.
"""

from __future__ import annotations

import resource

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import Callback, ModelDesc, ModelSaver, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(np.zeros(100_000, np.float32))

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x[0]) ** 2)


class FillUp(Callback):
    def after_epoch(self) -> None:
        if self.trainer.epoch_num == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))


def train(*callbacks: Callback) -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        callbacks=[*callbacks, ModelSaver()],
        extra_callbacks=(),
        monitors=(),
        max_epoch=3,
        logdir="out",
    )
    trainer = SimpleTrainer(config)
    trainer.setup()
    print("begins after step", trainer.global_step)
    trainer.main_loop()


try:
    train(FillUp())
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    train()

# Seen:
# begins after step 0
# WARNING:flowdsl.tensorflow.train.trainer:training continues after step 4, in epoch 2, from
# out/checkpoints/ckpt-4
# begins after step 4
# flowdsl.errors.FlowError: ModelSaver: the checkpoint of step 8 could not be written to
# out/checkpoints; the last good one is out/checkpoints/ckpt-4 (...

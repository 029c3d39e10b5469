"""The data of the latest checkpoint are damaged: here, their second half is missing.

Training does not silently start from the beginning. The error names the checkpoint, and how to
resume from the previous one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc, ModelSaver, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(np.zeros(1000, np.float32))

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x[0]) ** 2)


def train(max_epoch: int) -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        callbacks=[ModelSaver()],
        extra_callbacks=(),
        monitors=(),
        max_epoch=max_epoch,
        logdir="out",
    )
    trainer = SimpleTrainer(config)
    trainer.setup()
    print("begins after step", trainer.global_step)
    trainer.main_loop()


train(2)
data = Path("out/checkpoints/ckpt-8.data-00000-of-00001")
data.write_bytes(data.read_bytes()[:2000])
try:
    train(3)
finally:
    for path in Path("out/checkpoints").glob("ckpt-8.*"):
        path.unlink()
    train(3)

# Seen:
# begins after step 0
# WARNING:flowdsl.tensorflow.train.trainer:training continues after step 4, in epoch 2, from
# out/checkpoints/ckpt-4
# begins after step 4
# ERROR:tensorflow:Couldn't match files for checkpoint out/checkpoints/ckpt-8
# ERROR:tensorflow:Couldn't match files for checkpoint out/checkpoints/ckpt-8
# WARNING:flowdsl.tensorflow.train.checkpoint:out/checkpoints: the list of checkpoints was missing
# or damaged
# flowdsl.errors.SourceError: out/checkpoints/ckpt-8 is damaged: remove its files,
# out/checkpoints/ckpt-8.*, to continue from the earlier checkpoint (...

"""TensorFlow's list of checkpoints is empty, and the checkpoints are complete.

Training continues after the latest checkpoint, and the list is written again. A copy that a user
made beside the checkpoints is ignored.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc, ModelSaver, SimpleTrainer, TrainConfig


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


def train(max_epoch: int) -> None:
    config = TrainConfig(
        fl.from_items([np.float32(1)] * 8).batch(2),
        model=Mean,
        optimizer=tf.keras.optimizers.SGD,
        callbacks=[ModelSaver()],
        monitors=(),
        extra_callbacks=(),
        max_epoch=max_epoch,
        logdir="out",
    )
    SimpleTrainer(config).train()


train(1)
checkpoints = Path("out/checkpoints")
(checkpoints / "checkpoint").write_text("")
shutil.copy(checkpoints / "ckpt-4.index", checkpoints / "ckpt-4 (copy).index")
train(2)
print((checkpoints / "checkpoint").read_text().splitlines()[0])

# Seen:
# WARNING:flowdsl.tensorflow.train.trainer:training continues after step 4, in epoch 2, from
# out/checkpoints/ckpt-4
# WARNING:flowdsl.tensorflow.train.checkpoint:out/checkpoints: the list of checkpoints was missing
# or damaged
# model_checkpoint_path: "ckpt-8"

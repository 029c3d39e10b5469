"""Training is interrupted, and the same trainer trains again, as in a notebook.

It continues after the last finished step, with the next elements. A checkpoint is not needed.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import Callback, ModelDesc, QueueInputTrainer, TrainConfig


class Sum(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(1.0)
        self.total = tf.Variable(0.0, trainable=False)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return self.weight * self.total.assign_add(x)


class CtrlC(Callback):
    def trigger_step(self) -> None:
        if self.trainer.global_step == 2:
            raise KeyboardInterrupt


config = TrainConfig(
    fl.from_items([np.float32(x) for x in (1, 10, 100, 1000)]),
    model=Sum,
    optimizer=lambda: tf.keras.optimizers.SGD(0.0),
    callbacks=[CtrlC()],
    extra_callbacks=(),
    monitors=(),
    max_epoch=1,
)
trainer = QueueInputTrainer(config)
try:
    trainer.train()
except KeyboardInterrupt:
    print(trainer.global_step, "steps:", trainer.scalars["loss"])
trainer.train()
print(trainer.global_step, "steps:", trainer.scalars["loss"])

# Seen:
# 2 steps: 11.0
# 4 steps: 1111.0

"""A callback fails at the end of an epoch.

Its error is raised unchanged; the input is closed, and no worker of the flow is left, not even one
that waits for the next epoch.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import Callback, ModelDesc, QueueInputTrainer, TrainConfig


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


class Upload(Callback):
    def trigger_epoch(self) -> None:
        raise ConnectionError("the server of results is not there")


config = TrainConfig(
    fl.from_items([np.float32(1)] * 8).map(abs).batch(2).prefetch(procs=1),
    model=Mean,
    optimizer=tf.keras.optimizers.SGD,
    callbacks=[Upload()],
    extra_callbacks=(),
    monitors=(),
)
try:
    QueueInputTrainer(config).train()
finally:
    (fork_server,) = children(os.getpid())
    print("workers that are left:", children(fork_server))

# Seen:
# workers that are left: []
# ConnectionError: the server of results is not there

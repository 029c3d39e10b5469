"""A process of an asynchronous training dies: here, the worker, which is killed.

The error names it, and suggests what to do; the training does not wait for it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import AsyncDistributedTrainer, Callback, ModelDesc, TrainConfig

SERVE = """
import flowdsl as fl
from flowdsl.tensorflow.train import AsyncDistributedTrainer, ModelDesc, TrainConfig

AsyncDistributedTrainer(TrainConfig(fl.from_range(1), model=ModelDesc))
"""


class Mean(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.at = tf.Variable(0.0)

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.at - x) ** 2)


class Kill(Callback):
    def trigger_step(self) -> None:
        if self.trainer.global_step == 3:
            print("three steps are done")
            processes["worker"].kill()


def task(job: str) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})


cluster = {}
for job in ("chief", "ps", "worker"):
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster[job] = [f"127.0.0.1:{server.getsockname()[1]}"]
processes = {
    job: subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env={**os.environ, "TF_CONFIG": task(job)},
        stderr=subprocess.DEVNULL,
    )
    for job in ("ps", "worker")
}
os.environ["TF_CONFIG"] = task("chief")
config = TrainConfig(
    fl.from_items([np.float32(1)] * 8).batch(2),
    model=Mean,
    optimizer=tf.keras.optimizers.SGD,
    callbacks=[Kill()],
    extra_callbacks=(),
    monitors=(),
    max_epoch=100,
)
try:
    AsyncDistributedTrainer(config).train()
finally:
    processes["ps"].kill()

# Seen:
# three steps are done
# flowdsl.errors.FlowError: AsyncDistributedTrainer: /job:worker/replica:0/task:0/device:CPU:0 or
# one of the parameter servers has ended; run the program again to resume from the last checkpoint
# (UnavailableError)

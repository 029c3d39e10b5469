"""A program that several processes run, to train one model together.

    python -m tests.tensorflow.train.distributed FOLDER NAME OPTIMIZER ROWS [KILL_AT]

It writes the rows that it trains on, a line a step, and the weights at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import (
    Callback,
    DistributedReplicatedTrainer,
    ModelDesc,
    ModelSaver,
    Optimizer,
    TrainConfig,
)
from tests.tensorflow.train.regression import X, Y, adam, sgd

OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "sgd": sgd,
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": adam,
}


class Recording(ModelDesc):
    """A linear model that records the rows it is trained on."""

    def __init__(self, record: Callable[[np.ndarray], None] | None = None) -> None:
        super().__init__()
        self.w = tf.Variable(np.full((5, 1), 0.1, np.float32))
        self.b = tf.Variable(np.zeros((1,), np.float32))
        self._record = record

    def loss(self, row: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        if self._record is not None:
            tf.numpy_function(self._record, [row], [])
        return tf.reduce_mean((tf.tanh(x @ self.w) + self.b - y) ** 2)

    def weights(self) -> list[float]:
        return [*np.ravel(self.w.numpy()).tolist(), *np.ravel(self.b.numpy()).tolist()]


def batches(rows: int, size: int = 4) -> fl.Flow[tuple[Any, Any, Any], Any]:
    every = [(i, x, y) for i, (x, y) in enumerate(zip(X[:rows], Y[:rows], strict=True))]
    return fl.from_items(every).shuffle(seed=3).batch(size, drop_remainder=True)


class KillAt(Callback):
    chief_only = False

    def __init__(self, step: int) -> None:
        self.step = step

    def trigger_step(self) -> None:
        if self.trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, name: str, optimizer: str, rows: int, kill_at: int = 0) -> None:
    log = (folder / f"{name}.rows").open("w", buffering=1)

    def record(row: np.ndarray) -> None:
        log.write(json.dumps(row.tolist()) + "\n")

    config = TrainConfig(
        dataflow=batches(rows),
        model=lambda: Recording(record),
        optimizer=OPTIMIZERS[optimizer],
        callbacks=[ModelSaver(every_steps=4), *([KillAt(kill_at)] if kill_at else [])],
        extra_callbacks=(),
        monitors=(),
        max_epoch=2,
        logdir=folder / "log",
    )
    trainer = DistributedReplicatedTrainer(config)
    trainer.setup()
    began = trainer.global_step
    trainer.main_loop()
    assert isinstance(trainer.model, Recording)
    message = {
        "began": began,
        "steps": trainer.global_step,
        "left_over": trainer.left_over,
        "weights": trainer.model.weights(),
    }
    (folder / f"{name}.json").write_text(json.dumps(message))


if __name__ == "__main__":
    where, name, optimizer, *numbers = sys.argv[1:]
    main(Path(where), name, optimizer, *map(int, numbers))

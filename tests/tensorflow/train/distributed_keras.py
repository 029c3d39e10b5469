"""A compiled Keras model, which several processes train together.

python -m tests.tensorflow.train.distributed_keras FOLDER EPOCHS METRICS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import flowdsl as fl
from flowdsl.tensorflow.train import (
    DistributedReplicatedTrainer,
    InferenceRunner,
    JSONWriter,
    ModelSaver,
    TrainConfig,
)
from tests.tensorflow.train.keras_models import X, Y, keras


def make(metrics: list[str] | None) -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4), keras.layers.Dropout(0.2, seed=1), keras.layers.Dense(1)]
    net = keras.Sequential([keras.Input((6,)), *layers])
    net.compile(keras.optimizers.SGD(0.1), "mse", metrics=metrics)
    return net


def main(folder: Path, epochs: int, metrics: list[str] | None) -> None:
    rows = fl.from_items(list(zip(X, Y, strict=True))).batch(4)
    config = TrainConfig(
        rows,
        model=lambda: make(metrics),
        callbacks=[ModelSaver(every_steps=2), InferenceRunner(rows)],
        extra_callbacks=(),
        monitors=[JSONWriter()],
        max_epoch=epochs,
        logdir=folder,
    )
    DistributedReplicatedTrainer(config).train()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or None)

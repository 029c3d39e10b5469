"""Each trainer of several devices trains what one device does on the joined elements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.graph import FeedInput, QueueInput, StagingInput
from flowdsl.train import (
    AsyncMultiGPUTrainer,
    Callback,
    FeedfreeTrainerBase,
    History,
    LeastLoadedDeviceSetter,
    ModelDesc,
    ModelSaver,
    MultiGPUTrainerBase,
    Optimizer,
    QueueInputTrainer,
    SimpleFeedfreeTrainer,
    SimpleTrainer,
    SyncMultiGPUTrainer,
    SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)
from tests.train.regression import Floats, Linear, adam, points, sgd

STEPS, ROWS = 10, 4


def momentum() -> Optimizer:
    return tf.keras.optimizers.SGD(0.1, momentum=0.9)


class Penalized(Linear):
    """With L2: the penalty is part of each tower's loss, so also of their mean."""

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        loss, _ = super().loss(x, y)
        return loss + 0.1 * tf.reduce_sum(self.w**2), {}


def config(towers: int, **options: Any) -> TrainConfig:
    rows = ROWS if towers > 1 else options.pop("rows", ROWS)
    options.pop("rows", None)
    chosen: dict[str, Any] = {
        "dataflow": points().shuffle(seed=5).repeat().batch(rows),
        "model": Penalized,
        "optimizer": sgd,
        "extra_callbacks": (),
        "monitors": (),
        "steps_per_epoch": STEPS,
        "max_epoch": 1,
        "tower": [f"/cpu:{k}" for k in range(towers)],
    }
    return TrainConfig(**chosen | options)


def weights(trainer: Trainer) -> Floats:
    assert isinstance(trainer.model, Linear)
    return trainer.model.weights()


SYNCHRONOUS: list[Callable[[TrainConfig], Trainer]] = [
    SyncMultiGPUTrainerReplicated,
    SyncMultiGPUTrainer,
    lambda config: SyncMultiGPUTrainerParameterServer(config, "cpu"),
    lambda config: SyncMultiGPUTrainerParameterServer(config, gpu_prefetch=False),
]


@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
@pytest.mark.parametrize("towers", [1, 2, 4])
@pytest.mark.parametrize("make", SYNCHRONOUS)
def test_towers_train_what_one_device_trains_on_the_joined_elements(
    make: Callable[[TrainConfig], Trainer], towers: int, optimizer: Callable[[], Optimizer]
) -> None:
    trainer = make(config(towers, optimizer=optimizer))
    trainer.train()
    one = SimpleTrainer(config(1, optimizer=optimizer, rows=ROWS * towers))
    one.train()
    assert trainer.global_step == STEPS
    np.testing.assert_allclose(weights(trainer), weights(one), atol=1e-5)

from __future__ import annotations

import numpy as np
import tensorflow as tf

from flowdsl.tensorflow.train import (
    ModelDesc,
    SimpleTrainer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
)
from tests.tensorflow.train.regression import adam, points


class Net(ModelDesc):
    """Keras layers as an attribute, in a list and in a nested module, beside a variable."""

    def __init__(self) -> None:
        super().__init__()
        tf.keras.utils.set_random_seed(1)
        self.body = tf.keras.Sequential([tf.keras.Input((5,)), tf.keras.layers.Dense(4)])
        self.norms = [tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3)])]
        self.head = Head()
        self.again = self.body
        self.scale = tf.Variable(1.0)

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        hidden = self.norms[0](self.body(x))
        return tf.reduce_mean((self.scale * self.head.net(hidden) - y) ** 2)


class Head(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = tf.keras.layers.BatchNormalization()
        self.net = tf.keras.Sequential([tf.keras.Input((3,)), norm, tf.keras.layers.Dense(1)])


def test_every_variable_is_found_once() -> None:
    found = Net().trainable_variables
    assert len({id(variable) for variable in found}) == len(found) == 1 + 2 + 2 + 4


def test_every_variable_is_trained_on_every_device() -> None:
    config = TrainConfig(
        dataflow=points().batch(8),
        model=Net,
        optimizer=adam,
        extra_callbacks=(),
        monitors=(),
        max_epoch=1,
    )
    for trainer in (
        SimpleTrainer(config),
        SyncMultiGPUTrainerReplicated(config, ("/cpu:0", "/cpu:1")),
    ):
        before = [np.array(variable.numpy()) for variable in trainer.model.trainable_variables]
        trainer.train()
        after = [np.array(variable.numpy()) for variable in trainer.model.trainable_variables]
        assert all((a != b).any() for a, b in zip(before, after, strict=True))

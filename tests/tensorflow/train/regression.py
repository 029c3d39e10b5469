"""A small problem: a linear model with a known solution, and its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow.train import ModelDesc

Floats = NDArray[np.float32]


class Point(NamedTuple):
    x: Floats
    y: Floats


_rng = np.random.default_rng(0)
X: Floats = _rng.normal(size=(96, 5)).astype(np.float32)
Y: Floats = (X @ _rng.normal(size=(5, 1)) + 0.5).astype(np.float32)


def points(n: int = 96) -> fl.Flow[Point, fl.Exact]:
    return fl.from_items([Point(x, y) for x, y in zip(X[:n], Y[:n], strict=True)])


class Linear(ModelDesc):
    """tanh(x @ w) + b, from the same start every time."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.full((5, 1), 0.1, np.float32))
        self.b = tf.Variable(np.zeros((1,), np.float32))

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
        error = tf.tanh(x @ self.w) + self.b - y
        return tf.reduce_mean(error**2), {"bias": tf.reduce_mean(error)}

    def weights(self) -> Floats:
        """All of them, in one array."""
        return np.concatenate([np.ravel(self.w.numpy()), np.ravel(self.b.numpy())])


def adam() -> tf.keras.optimizers.Optimizer:
    return tf.keras.optimizers.Adam(0.05)


def sgd() -> tf.keras.optimizers.Optimizer:
    return tf.keras.optimizers.SGD(0.1)

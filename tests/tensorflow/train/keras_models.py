"""Compiled Keras models: layers, policies and optimizers that keep state of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow.train import (
    SimpleTrainer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)

keras: Any = tf.keras
"""Untyped: the stubs lack most of the Keras functions used here."""

_rng = np.random.default_rng(0)
X: NDArray[np.float32] = _rng.normal(size=(24, 6)).astype(np.float32)
Y: NDArray[np.float32] = (X[:, :1] * X[:, 1:2] > 0).astype(np.float32)
BATCH, EPOCHS = 4, 2

LAYERS: dict[str, Callable[[], list[Any]]] = {
    "dropout": lambda: [keras.layers.Dropout(0.3, seed=1)],
    "spatial dropout": lambda: [
        keras.layers.Reshape((4, 2)),
        keras.layers.SpatialDropout1D(0.3, seed=1),
        keras.layers.Flatten(),
    ],
    "gaussian noise": lambda: [keras.layers.GaussianNoise(0.3, seed=1)],
    "alpha dropout": lambda: [keras.layers.AlphaDropout(0.3, seed=1)],
    "random flip and rotation": lambda: [
        keras.layers.Reshape((4, 2, 1)),
        keras.layers.RandomFlip(seed=1),
        keras.layers.RandomRotation(0.2, seed=2),
        keras.layers.Flatten(),
    ],
    "lstm with dropout": lambda: [
        keras.layers.Reshape((4, 2)),
        keras.layers.LSTM(3, dropout=0.3, recurrent_dropout=0.2, seed=1),
    ],
    "batch normalization": lambda: [keras.layers.BatchNormalization(momentum=0.8)],
    "penalties": lambda: [
        keras.layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l2"),
    ],
    "a model in a model": lambda: [
        keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.2, seed=4)])
    ],
}

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adamw": lambda: keras.optimizers.AdamW(0.02, weight_decay=0.1),
    "averaged": lambda: keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.7),
    "accumulating": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "clipping": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.5),
    "scheduled": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    ),
    "loss scale": lambda: keras.optimizers.SGD(0.1, loss_scale_factor=1024.0),
    "wrapped": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
}


def compiled(
    layer: str, optimizer: str, policy: str = "float32", metrics: Sequence[str] = ("accuracy",)
) -> Callable[[], Any]:
    """A function that makes the model, with the same first values each time."""

    def make() -> Any:
        before = keras.mixed_precision.dtype_policy()
        keras.utils.set_random_seed(3)
        keras.mixed_precision.set_dtype_policy(policy)
        try:
            net = keras.Sequential(
                [
                    keras.Input((6,)),
                    keras.layers.Dense(8, activation="tanh"),
                    *LAYERS[layer](),
                    keras.layers.Dense(1, activation="sigmoid", dtype="float32"),
                ]
            )
            net.compile(OPTIMIZERS[optimizer](), "binary_crossentropy", metrics=[*metrics])
        finally:
            keras.mixed_precision.set_dtype_policy(before)
        return net

    return make


def config(make: Callable[[], Any], towers: int = 1, **options: Any) -> TrainConfig:
    flow = fl.from_items(list(zip(X, Y, strict=True))).batch(BATCH // towers)
    chosen: dict[str, Any] = {"extra_callbacks": (), "monitors": (), "max_epoch": EPOCHS}
    devices = ["/cpu:0", "/cpu:1"][:towers]
    return TrainConfig(flow, model=make, tower=devices, **chosen | options)


def trainer(make: Callable[[], Any], towers: int = 1, **options: Any) -> Trainer:
    kind = SimpleTrainer if towers == 1 else SyncMultiGPUTrainerReplicated
    return kind(config(make, towers, **options))


def fitted(make: Callable[[], Any], towers: int = 1, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The model that ``fit`` has trained on as many devices, and its history."""
    if towers == 1:
        net = make()
    else:
        strategy = tf.distribute.MirroredStrategy(
            ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
        )
        with strategy.scope():
            net = make()
    history = net.fit(
        X, Y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, **options
    ).history
    return net, history


def values(net: Any) -> list[NDArray[Any]]:
    """Weights, statistics and seeds."""
    return [variable.numpy() for variable in net.variables]


def assert_equal(ours: Any, theirs: Any, atol: float = 1e-6) -> None:
    for variable, mine, other in zip(ours.variables, values(ours), values(theirs), strict=True):
        np.testing.assert_allclose(mine, other, atol=atol, rtol=1e-5, err_msg=variable.path)

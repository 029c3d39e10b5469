"""Digits, by each trainer: one device or several, in step or not, and a model of Keras."""

import argparse
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import flowdsl as fl
from flowdsl.tensorflow import train as training
from flowdsl.tensorflow.inputs import logical_cpus

TOWERS = 2


def rows() -> list[tuple[NDArray[np.float32], int]]:
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[..., None]
    return list(zip(images, map(int, digits.target), strict=True))


def net() -> tf.keras.Sequential:
    layers = tf.keras.layers
    convolved = [layers.Conv2D(32, 3, activation="relu"), layers.Flatten()]
    return tf.keras.Sequential([tf.keras.Input((8, 8, 1)), *convolved, layers.Dense(10)])


class Digits(training.ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def logits(self, image: tf.Tensor) -> tf.Tensor:
        return self.net(image)

    def loss(self, image: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        return tf.reduce_mean(entropy(labels=label, logits=self.logits(image)))


def keras_model() -> tf.keras.Model:
    model = net()
    entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(3e-3), loss=entropy)
    return model


TRAINERS: dict[str, Callable[[training.TrainConfig], training.Trainer]] = {
    "simple": training.SimpleTrainer,
    "queue": training.QueueInputTrainer,
    "keras": training.QueueInputTrainer,
    "replicated": training.SyncMultiGPUTrainerReplicated,
    "parameter-server": training.SyncMultiGPUTrainer,
    "central": lambda config: training.SyncMultiGPUTrainerParameterServer(config, "cpu"),
    "async": training.AsyncMultiGPUTrainer,
}


def accuracy(name: str, epochs: int) -> float:
    """The share of held-out digits that a trainer's model gets right."""
    every = rows()
    train = [row for k, row in enumerate(every) if k % 5]
    several = name not in ("simple", "queue", "keras")
    towers = TOWERS if several else 1
    config = training.TrainConfig(
        dataflow=fl.from_items(train).shuffle(seed=1).batch(64 // towers, drop_remainder=True),
        model=keras_model if name == "keras" else Digits,
        optimizer=None if name == "keras" else lambda: tf.keras.optimizers.Adam(3e-3),
        extra_callbacks=(),
        monitors=(),
        max_epoch=epochs,
        tower=logical_cpus(TOWERS)[:towers],
    )
    trainer = TRAINERS[name](config)
    trainer.train()
    images, labels = map(np.array, zip(*every[::5], strict=True))
    output = "output" if name == "keras" else "logits"
    (logits,) = trainer.get_predictor(["image"], [output])(images)
    return float((logits.argmax(1) == labels).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer", choices=list(TRAINERS), nargs="*", default=list(TRAINERS))
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    logical_cpus(TOWERS)
    for name in options.trainer:
        tf.keras.utils.set_random_seed(1)
        print(f"{name:<17} {accuracy(name, options.epochs):.3f}")

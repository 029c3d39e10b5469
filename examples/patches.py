"""A convolutional net that classifies patches of two photographs."""

import argparse
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

import flowdsl as fl
from flowdsl.tensorflow import train as training

SIDE, EDGE = 32, 400
"""Patches for training are left of column EDGE, held-out ones right of it: no pixel is in both."""
PHOTOGRAPHS: list[NDArray[np.uint8]] = load_sample_images().images  # 427 x 640 pixels, RGB


class Patch(NamedTuple):
    image: NDArray[np.uint8]
    label: int


def patch(i: int, rng: np.random.Generator) -> Patch:
    """A random patch for training, mirrored or not, brighter or darker."""
    label = i % 2
    image = PHOTOGRAPHS[label]
    y, x = rng.integers(image.shape[0] - SIDE), rng.integers(EDGE - SIDE)
    cut = image[y : y + SIDE, x : x + SIDE]
    cut = cut[:, ::-1] if rng.integers(2) else cut
    return Patch(np.clip(cut * rng.uniform(0.8, 1.2), 0, 255).astype(np.uint8), label)


def held_out() -> list[Patch]:
    """The patches of a grid, as they are."""
    return [
        Patch(image[y : y + SIDE, x : x + SIDE], label)
        for label, image in enumerate(PHOTOGRAPHS)
        for y in range(0, image.shape[0] - SIDE, SIDE)
        for x in range(EDGE, image.shape[1] - SIDE, SIDE)
    ]


class Net(training.ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        layers: list[tf.keras.layers.Layer] = []
        for filters in (16, 32, 64):
            layers += [
                tf.keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False),
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Activation("relu"),
            ]
        head = [tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(2)]
        self.net = tf.keras.Sequential([tf.keras.Input((SIDE, SIDE, 3)), *layers, *head])

    def measured(
        self, image: tf.Tensor, label: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        logits = self.net(tf.cast(image, tf.float32) / 127.5 - 1, training=training)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        right = tf.cast(tf.nn.in_top_k(label, logits, 1), tf.float32)
        return tf.reduce_mean(loss), {"accuracy": tf.reduce_mean(right)}

    def loss(self, image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return self.measured(image, label, training=True)

    def evaluated(self, image: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.measured(image, label, training=False)[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    epochs: int = parser.parse_args().epochs
    tf.keras.utils.set_random_seed(1)
    patches = fl.from_range(64 * 50).random_map(patch, seed=1).batch(64)
    config = training.TrainConfig(
        dataflow=patches.prefetch(procs=2),
        model=Net,
        optimizer=lambda: tf.keras.optimizers.Adam(1e-3),
        callbacks=[
            training.InferenceRunner(fl.from_items(held_out()).batch(64), Net.evaluated),
            training.ScheduledHyperParamSetter("learning_rate", [(0, 3e-3), (10, 3e-4)]),
            training.MaxSaver("validation_accuracy"),
            training.DataReport(),
        ],
        max_epoch=epochs,
        logdir="patches",
    )
    training.QueueInputTrainer(config).train()
    accuracy = training.read_stats("patches")[-1]["validation_accuracy"]
    print(f"held-out accuracy: {accuracy:.3f}")

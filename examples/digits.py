"""Train on handwritten digits. Kill it and run it again: it goes on at the next batch."""

import attrs
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import flowdsl as fl
from flowdsl.tensorflow import train as training
from flowdsl.tensorflow.inputs import QueueInput, logical_cpus


@attrs.frozen
class SampleBatch:
    image: NDArray[np.uint8]
    label: NDArray[np.int64]


@attrs.frozen
class Sample(fl.Record[SampleBatch]):
    image: NDArray[np.uint8]
    label: np.int64


def write_digits() -> None:
    digits = load_digits()
    rows = [*map(Sample, digits.images.astype(np.uint8), digits.target)]
    fl.from_items(rows[::5]).write_lmdb("held_out.lmdb", overwrite=True)
    del rows[::5]
    fl.from_items(rows).write_lmdb("train.lmdb", overwrite=True)


def augment(sample: Sample, rng: np.random.Generator) -> Sample:
    y, x = rng.integers(3, size=2)  # moves the digit by a pixel at most
    return Sample(np.pad(sample.image, 1)[y : y + 8, x : x + 8], sample.label)


class Digits(training.ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        cnn = [tf.keras.layers.Conv2D(64, 3, activation="relu"), tf.keras.layers.Flatten()]
        self.net = tf.keras.Sequential([tf.keras.Input((8, 8, 1)), *cnn, tf.keras.layers.Dense(10)])

    def loss(self, image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        logits = self.net(image[..., None] / 16)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        right = tf.cast(tf.nn.in_top_k(label, logits, 1), tf.float32)
        return tf.reduce_mean(loss), {"accuracy": tf.reduce_mean(right)}


if __name__ == "__main__":
    write_digits()
    train = (
        fl.from_lmdb("train.lmdb", Sample)
        .shuffle(seed=7)
        .random_map(augment, seed=7)
        .batch(32)
        .repeat()
        .prefetch(procs=2)
    )
    print(train.explain())
    held_out = fl.from_lmdb("held_out.lmdb", Sample).batch(64)
    tf.keras.utils.set_random_seed(1)
    config = training.TrainConfig(
        data=QueueInput(train),
        model=Digits,
        optimizer=lambda: tf.keras.optimizers.Adam(4e-3),
        callbacks=[training.ModelSaver(every_steps=10), training.InferenceRunner(held_out)],
        steps_per_epoch=45,
        max_epoch=40,
        tower=logical_cpus(2),
        logdir="out",
    )
    training.SyncMultiGPUTrainerReplicated(config).train()
    training.draw_curves("out", "out/training.png")
    accuracy = training.read_stats("out")[-1]["validation_accuracy"]
    print(f"held-out accuracy: {accuracy:.3f}; see training.png, stats.json and events.* in out/")

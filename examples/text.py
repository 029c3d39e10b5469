"""A recurrent model that predicts the next character of lines of any length."""

import argparse

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from sklearn import datasets

import flowdsl as fl
from flowdsl.tensorflow import train as training

LETTERS = 128  # of ASCII; 0 is no character: it fills a line up
SETS = [datasets.load_iris, datasets.load_wine, datasets.load_diabetes]
SETS += [datasets.load_digits, datasets.load_breast_cancer]


def lines() -> list[str]:
    """What scikit-learn says of its datasets."""
    text = "\n".join(load().DESCR for load in SETS)
    return [line.strip() for line in text.splitlines() if line.strip().isascii() and line.strip()]


def encoded(line: str) -> NDArray[np.int64]:
    return np.frombuffer(f"\n{line}\n".encode(), np.uint8).astype(np.int64)


def filled_up(tokens: NDArray[np.int64]) -> NDArray[np.int64]:  # many are then of one length
    return np.pad(tokens, (0, -len(tokens) % 16))


def bits_of_pairs(train: list[str], held_out: list[str]) -> float:
    """Bits a character by how often one follows another: what the model has to beat."""
    counts = np.full((LETTERS, LETTERS), 0.1)
    for tokens in map(encoded, train):
        np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    bits = -np.log2(counts / counts.sum(1, keepdims=True))
    each = [bits[tokens[:-1], tokens[1:]] for tokens in map(encoded, held_out)]
    return float(np.concatenate(each).mean())


class Next(training.ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.net = tf.keras.Sequential(
            [
                tf.keras.Input((None,), dtype="int64"),
                tf.keras.layers.Embedding(LETTERS, 32),
                tf.keras.layers.GRU(128, return_sequences=True),
                tf.keras.layers.Dense(LETTERS),
            ]
        )

    def sums(self, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The bits of all characters of a batch, and how many these are."""
        wanted, there = tokens[:, 1:], tf.cast(tf.not_equal(tokens[:, 1:], 0), tf.float32)
        logits = self.net(tokens[:, :-1])
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=logits)
        return tf.reduce_sum(loss * there) / np.log(2), tf.reduce_sum(there)

    def loss(self, tokens: tf.Tensor) -> tf.Tensor:
        bits, characters = self.sums(tokens)
        return bits / characters

    def evaluated(self, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        bits, characters = self.sums(tokens)
        lines = tf.cast(tf.shape(tokens)[0], tf.float32)
        return {"bits": bits / lines, "characters": characters / lines}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    epochs: int = parser.parse_args().epochs
    tf.keras.utils.set_random_seed(1)
    every = lines()
    train, held_out = [line for k, line in enumerate(every) if k % 5], every[::5]
    flow = fl.from_items(train).shuffle(seed=1).map(encoded).map(filled_up)
    config = training.TrainConfig(
        dataflow=flow.batch_by_shape(16, lambda tokens: tokens).repeat(),
        model=Next,
        optimizer=lambda: tf.keras.optimizers.Adam(4e-3),
        callbacks=[
            training.InferenceRunner(
                fl.from_items(held_out).map(encoded).padded_batch(32), Next.evaluated
            ),
        ],
        steps_per_epoch=25,
        max_epoch=epochs,
        logdir="text",
    )
    training.QueueInputTrainer(config).train()
    last = training.read_stats("text")[-1]
    bits, characters = last["validation_bits"], last["validation_characters"]
    assert bits
    assert characters
    pairs = bits_of_pairs(train, held_out)
    print(f"bits a character: {bits / characters:.2f}; by pairs of characters: {pairs:.2f}")

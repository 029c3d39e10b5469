"""A step of one's own: a GAN, whose two optimizers take turns on points of a ring."""

import argparse

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow import train as training

CENTERS, CODE = 8, 16


def point(i: int, rng: np.random.Generator) -> NDArray[np.float32]:
    angle = 2 * np.pi * rng.integers(CENTERS) / CENTERS
    center = np.array([np.cos(angle), np.sin(angle)])
    return (center + rng.normal(0, 0.05, 2)).astype(np.float32)


def perceptron(inputs: int, outputs: int) -> tf.keras.Sequential:
    hidden = [tf.keras.layers.Dense(64, activation="relu") for _ in range(2)]
    return tf.keras.Sequential([tf.keras.Input((inputs,)), *hidden, tf.keras.layers.Dense(outputs)])


class GAN(training.ModelDesc):
    """Its optimizers are attributes, so they are in its checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = perceptron(CODE, 2), perceptron(2, 1)
        self.g_optimizer = tf.keras.optimizers.Adam(1e-3, beta_1=0.5)
        self.c_optimizer = tf.keras.optimizers.Adam(1e-3, beta_1=0.5)
        self.g_optimizer.build(self.generator.trainable_variables)
        self.c_optimizer.build(self.critic.trainable_variables)

    def generated(self, code: tf.Tensor) -> tf.Tensor:
        return self.generator(code)


class GANTrainer(training.FeedfreeTrainerBase):
    def build_train_tower(self, real: tf.Tensor) -> dict[str, tf.Tensor]:
        gan = self.model
        assert isinstance(gan, GAN)
        ones = tf.ones_like(real[:, :1])
        loss = tf.nn.sigmoid_cross_entropy_with_logits

        with tf.GradientTape() as tape:
            fake = gan.generator(tf.random.normal((256, CODE)))
            loss_of_critic = loss(ones, gan.critic(real)) + loss(0 * ones, gan.critic(fake))
            c_loss = tf.reduce_mean(loss_of_critic)
        variables = gan.critic.trainable_variables
        gan.c_optimizer.apply(tape.gradient(c_loss, variables), variables)

        with tf.GradientTape() as tape:
            fake = gan.generator(tf.random.normal((256, CODE)))
            g_loss = tf.reduce_mean(loss(ones, gan.critic(fake)))
        variables = gan.generator.trainable_variables
        gan.g_optimizer.apply(tape.gradient(g_loss, variables), variables)
        return {"critic": c_loss, "generator": g_loss}


def near_the_ring(trainer: training.Trainer) -> tuple[float, int]:
    """The share of generated points that lie at a center, and the centers that have some."""
    generate = trainer.get_predictor(["code"], ["generated"])
    (points,) = generate(np.random.default_rng(1).normal(size=(2000, CODE)).astype(np.float32))
    angles = 2 * np.pi * np.arange(CENTERS) / CENTERS
    centers = np.stack([np.cos(angles), np.sin(angles)], 1)
    distances = np.linalg.norm(points[:, None] - centers, axis=-1)
    near = distances.min(1) < 0.2
    return float(near.mean()), len({*distances.argmin(1)[near].tolist()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    epochs: int = parser.parse_args().epochs
    tf.keras.utils.set_random_seed(1)
    ring = fl.from_range(256 * 200).random_map(point, seed=1).batch(256)
    config = training.TrainConfig(
        dataflow=ring.prefetch(procs=1),
        model=GAN,
        callbacks=[training.ModelSaver()],
        max_epoch=epochs,
        logdir="gan",
    )
    trainer = GANTrainer(config)
    trainer.train()
    share, centers = near_the_ring(trainer)
    print(f"{share:.0%} of the points lie at one of {centers} of {CENTERS} centers")

"""Train a Keras model on image files in class folders. Kill it and run it again: it goes on."""

import json
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import flowdsl as fl
from flowdsl.keras.fit import Fit

EPOCHS = 3
CHECKPOINTS = Path("keras_digits")


def write_digits(folder: Path) -> None:
    """Write the handwritten digits as ``folder/<digit>/<number>.png``."""
    digits = load_digits()
    for i, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(f"{folder}/{label}/{i:04}.png", image.astype(np.uint8) * 15)


def read(path: Path) -> tuple[NDArray[np.uint8], int]:
    return fl.decode_image(path.read_bytes(), channels=1), int(path.parent.name)


def augment(
    sample: tuple[NDArray[np.uint8], int], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], int]:
    image, label = sample
    y, x = rng.integers(3, size=2)  # moves the digit by a pixel at most
    return np.pad(image, ((1, 1), (1, 1), (0, 0)))[y : y + 8, x : x + 8], label


class Save(keras.callbacks.Callback):
    """Keeps the model and the place of its data, every ten steps."""

    def __init__(self, data: Fit) -> None:
        super().__init__()
        self.data, self.steps = data, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        if self.steps % 10 == 0:
            new = CHECKPOINTS / f"{self.data.epoch}-{batch}"
            new.mkdir(parents=True, exist_ok=True)
            self.model.save(new / "model.keras")
            (new / "place.json").write_text(json.dumps(self.data.state_dict(batch + 1)))
            (CHECKPOINTS / "latest.new").write_text(new.name)
            (CHECKPOINTS / "latest.new").replace(CHECKPOINTS / "latest")


def new_model() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(4e-3), loss=loss, metrics=["accuracy"])
    return model


def main() -> None:
    if not Path("digits").exists():
        write_digits(Path("digits"))
    paths = fl.from_items(sorted(Path("digits").glob("*/*.png")))
    train, held_out = paths.split(0.8, seed=1)
    rows = train.shuffle(seed=7).map(read).random_map(augment, seed=7)
    data, model = rows.batch(32).prefetch(procs=2).to_keras(), new_model()
    if (CHECKPOINTS / "latest").exists():
        latest = CHECKPOINTS / (CHECKPOINTS / "latest").read_text()
        model = keras.models.load_model(latest / "model.keras")
        data.load_state_dict(json.loads((latest / "place.json").read_text()))
        print(f"going on in epoch {data.epoch}")
    for epoch in range(data.epoch, EPOCHS):
        model.fit(data, initial_epoch=epoch, epochs=epoch + 1, callbacks=[Save(data)], verbose=0)
        _, accuracy = model.evaluate(held_out.map(read).batch(64).to_keras(), verbose=0)
        print(f"epoch {epoch}: held-out accuracy {accuracy:.3f}")
    np.savez("model.npz", *model.get_weights())


if __name__ == "__main__":
    main()

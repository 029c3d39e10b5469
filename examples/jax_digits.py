"""Train a JAX model on image files in class folders. Kill it and run it again: it goes on."""

from pathlib import Path
from typing import Any, TypeAlias

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import flowdsl as fl

EPOCHS = 3
CHECKPOINTS = Path("jax_digits").absolute()

Params: TypeAlias = dict[str, jax.Array]


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


def initial(key: jax.Array) -> Params:
    hidden, out = jax.random.split(key)
    return {
        "hidden": jax.random.normal(hidden, (64, 128)) / 8,
        "out": jax.random.normal(out, (128, 10)) / 12,
    }


def logits_of(params: Params, image: jax.Array) -> jax.Array:
    x = image.reshape(len(image), -1) / 255
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


def loss_of(params: Params, image: jax.Array, label: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits_of(params, image)), label[:, None], 1)
    return -chosen.mean()


@jax.jit
def train_step(params: Params, image: jax.Array, label: jax.Array) -> Params:
    grads = jax.grad(loss_of)(params, image, label)
    return {name: x - 0.5 * grads[name] for name, x in params.items()}


def main() -> None:
    if not Path("digits").exists():
        write_digits(Path("digits"))
    paths = fl.from_items(sorted(Path("digits").glob("*/*.png")))
    train, held_out = paths.split(0.8, seed=1)
    rows = train.shuffle(seed=7).map(read).random_map(augment, seed=7)
    loader = rows.batch(32).prefetch(procs=2).to_jax()
    params, step = initial(jax.random.key(1)), 0
    with ocp.CheckpointManager(CHECKPOINTS) as checkpoints:
        if (latest := checkpoints.latest_step()) is not None:
            kinds = {"params": ocp.args.StandardRestore(params), "loader": ocp.args.JsonRestore()}
            saved: Any = checkpoints.restore(latest, args=ocp.args.Composite(**kinds))
            params, step = saved["params"], latest
            loader.load_state_dict(saved["loader"])
            print(f"going on in epoch {loader.epoch}")

        for epoch in range(loader.epoch, EPOCHS):
            for image, label in loader:
                params = train_step(params, image, label)
                step += 1
                if step % 10 == 0:
                    place = ocp.args.JsonSave(loader.state_dict())
                    parts = {"params": ocp.args.StandardSave(params), "loader": place}
                    checkpoints.save(step, args=ocp.args.Composite(**parts))
            right = [
                logits_of(params, image).argmax(1) == label
                for image, label in held_out.map(read).batch(64).to_jax()
            ]
            print(f"epoch {epoch}: held-out accuracy {jnp.concatenate(right).mean():.3f}")
    np.savez("model.npz", **jax.tree.map(np.asarray, params))


if __name__ == "__main__":
    main()

"""Steps and rows a second in PyTorch, JAX and Keras: fed by flowdsl, by others, by a constant.

python -m bench.frameworks
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench.contestants import CONTESTANTS, tf_dataset
from bench.rates import Pass, Work, run
from bench.works import WORKS as ROWS

BATCH, STEPS = 32, 200
SIDE, HIDDEN, CLASSES = 32, 1024, 10
"""Images of 32x32x3 and a layer of 1024: a training step takes 5 to 10 ms of a core."""
PHOTOGRAPHS = 50
"""Batches of 32 photographs in a pass."""

Image: TypeAlias = NDArray[np.uint8]
Step: TypeAlias = Callable[[Any, Any], object]


@cache
def _images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (1000, SIDE, SIDE, 3), np.uint8)


def _row(i: int) -> tuple[Image, int]:
    return _images()[i % 1000], i % CLASSES


def _augment(row: tuple[Image, int], rng: np.random.Generator) -> tuple[Image, int]:
    """Perhaps mirrored: what costs little, since a step on the other core is what is timed."""
    image, label = row
    return (image[:, ::-1] if rng.integers(2) else image), label


def _rows() -> fl.Flow[Any, Any]:
    return fl.from_range(STEPS * BATCH).shuffle(seed=1).map(_row).random_map(_augment, seed=2)


def _flow() -> fl.Flow[Any, Any]:
    return _rows().batch(BATCH).prefetch(procs=1)


def _constant() -> tuple[Image, NDArray[np.int64]]:
    x, y = next(iter(_rows().batch(BATCH)))
    return np.array(x), np.array(y)


# -- PyTorch ---------------------------------------------------------------------------------------


def _torch() -> Any:
    torch: Any = import_module("torch")
    torch.set_num_threads(1)  # the other core is the workers'
    return torch


def _torch_step() -> Step:
    torch = _torch()
    torch.manual_seed(0)
    nn = torch.nn
    layers = nn.Flatten(), nn.Linear(3 * SIDE**2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    net = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)

    def step(x: Any, y: Any) -> object:
        loss = nn.functional.cross_entropy(net(x.float() / 255), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # as a loop that shows its loss

    return step


def _torch_constant() -> Pass:
    step, (x, y) = _torch_step(), map(_torch().from_numpy, _constant())
    return lambda: (step(x, y) for _ in range(STEPS))


def _torch_fed() -> Pass:
    step, loader = _torch_step(), _flow().to_torch()
    return lambda: (step(x, y) for x, y in loader)


def _torch_loaded() -> Pass:
    """By a DataLoader with one worker, which makes such rows."""
    data, step = import_module("torch.utils.data"), _torch_step()

    class Rows(data.Dataset):  # type: ignore[misc,name-defined]  # its base is found in its turn
        def __len__(self) -> int:
            return STEPS * BATCH

        def __getitem__(self, i: int) -> Any:
            image, label = _augment(_row(i), np.random.default_rng(i))
            return image.copy(), label  # without negative strides, which PyTorch refuses

    loader = data.DataLoader(Rows(), BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    return lambda: (step(x, y) for x, y in loader)


def _photographs_to_torch(who: str, pinned: bool = False) -> Pass:
    """Batches of decoded, cut and resized photographs, as tensors: 2 workers each."""
    torch = _torch()
    work, rows = ROWS["jpeg"], PHOTOGRAPHS * ROWS["jpeg"].batch
    if who == "flowdsl":
        loader = work.rows(rows).batch(work.batch).prefetch(procs=2).to_torch()
        return lambda: iter(loader)
    if pinned:
        data = import_module("torch.utils.data")
        from bench.contestants import _Dataset

        loader = data.DataLoader(
            _Dataset(work.read, rows),
            batch_size=work.batch,
            num_workers=2,
            persistent_workers=True,
            pin_memory=True,
        )
        return lambda: iter(loader)
    passes = CONTESTANTS[who].prepare(work, rows)
    as_tensors = partial(map, torch.as_tensor)
    return lambda: (tuple(as_tensors(batch)) for batch in passes())


# -- JAX -------------------------------------------------------------------------------------------


@cache
def _jax() -> Any:
    os.environ["NPROC"] = "1"  # the size of XLA's thread pool: the other core is the workers'
    return import_module("jax")


def _jax_step() -> Step:
    jax = _jax()
    jnp = jax.numpy
    first, second = jax.random.split(jax.random.key(0))
    params = [
        jax.random.normal(first, (3 * SIDE**2, HIDDEN)) / 60,
        jax.random.normal(second, (HIDDEN, CLASSES)) / 30,
    ]

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        x = x.reshape(len(x), -1) / 255
        logits = jax.nn.relu(x @ params[0]) @ params[1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    @jax.jit  # type: ignore[untyped-decorator]  # JAX comes by its name here
    def trained(params: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        return [p - 1e-3 * g for p, g in zip(params, grads, strict=True)], loss

    def step(x: Any, y: Any) -> object:
        nonlocal params
        params, loss = trained(params, x, y)
        return float(loss)

    return step


def _jax_constant() -> Pass:
    step, (x, y) = _jax_step(), map(_jax().device_put, _constant())
    return lambda: (step(x, y) for _ in range(STEPS))


def _jax_fed() -> Pass:
    step, loader = _jax_step(), _flow().to_jax()
    return lambda: (step(x, y) for x, y in loader)


def _photographs_to_jax(who: str) -> Pass:
    jax = _jax()
    work, rows = ROWS["jpeg"], PHOTOGRAPHS * ROWS["jpeg"].batch
    if who == "flowdsl":
        loader = work.rows(rows).batch(work.batch).prefetch(procs=2).to_jax()
        return lambda: iter(loader)
    passes = CONTESTANTS[who].prepare(work, rows)

    def placed() -> Iterator[Any]:
        for batch in passes():
            yield jax.device_put(tuple(map(np.asarray, batch)))

    return placed


# -- Keras -----------------------------------------------------------------------------------------


def _keras_fit(who: str) -> Pass:
    """``fit`` of a small model on photographs, 2 workers each; a pass is an epoch."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    keras: Any = import_module("keras")
    work, rows = ROWS["jpeg"], PHOTOGRAPHS * ROWS["jpeg"].batch
    data, callbacks = _keras_data(who, keras, rows)  # before TensorFlow starts with the model
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((224, 224, 3)),
            layers.Rescaling(1 / 255),
            layers.AveragePooling2D(7),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(1),
        ]
    )
    model.compile(loss="mse", optimizer=keras.optimizers.SGD(1e-9))

    def epoch() -> Iterator[None]:
        model.fit(data, epochs=1, verbose=0, shuffle=False, callbacks=callbacks)
        yield from [None] * (rows // work.batch)

    return epoch


def _keras_data(who: str, keras: Any, rows: int) -> tuple[Any, list[Any]]:
    work = ROWS["jpeg"]
    if who == "flowdsl":
        ours = work.rows(rows).batch(work.batch).prefetch(procs=2).to_keras()
        return ours, [ours.follows]
    if who == "tf.data":
        return tf_dataset(work, rows), []

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # imported in its turn
        def __len__(self) -> int:
            return rows // work.batch

        def __getitem__(self, k: int) -> Any:
            images, labels = zip(
                *(work.read(i) for i in range(k * work.batch, (k + 1) * work.batch)), strict=True
            )
            return np.stack(images), np.array(labels)

    return Batches(workers=2, use_multiprocessing=who == "processes"), []


def _photographs(make: Callable[[str], Pass], **others: Callable[[], Pass]) -> Work:
    contestants = {who: partial(make, who) for who in ("flowdsl", "loader", "grain")}
    return Work(PHOTOGRAPHS * ROWS["jpeg"].batch, {**contestants, **others})


WORKS: dict[str, Work] = {
    "PyTorch, a step of 5-10 ms": Work(
        STEPS,
        {"flowdsl": _torch_fed, "constant": _torch_constant, "loader": _torch_loaded},
        goal=0.97,
        of="constant",
    ),
    "JAX, a step of 5-10 ms": Work(
        STEPS, {"flowdsl": _jax_fed, "constant": _jax_constant}, goal=0.97, of="constant"
    ),
    "photographs to PyTorch": _photographs(
        _photographs_to_torch, pinned=partial(_photographs_to_torch, "loader", True)
    ),
    "photographs to JAX": _photographs(_photographs_to_jax),
    "photographs to fit of Keras": Work(
        PHOTOGRAPHS * ROWS["jpeg"].batch,
        {who: partial(_keras_fit, who) for who in ("flowdsl", "threads", "processes", "tf.data")},
    ),
}

NEEDS = {"loader": "torch", "pinned": "torch", "grain": "grain", "tf.data": "tensorflow"}


def main() -> None:
    run("bench.frameworks", __doc__, "steps or rows", WORKS, NEEDS, Path("out/frameworks.json"))


if __name__ == "__main__":
    main()

"""Steps a second on a GPU, in PyTorch and JAX: fed by flowdsl, by a DataLoader, by a constant.

python -m bench.gpu

It needs a CUDA device. Each contestant first shows that what arrives on the device is right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench.rates import Pass, Work, run
from bench.works import WORKS as ROWS

Batches: TypeAlias = Callable[[], Iterator[Any]]
Step: TypeAlias = Callable[[Any], object]

BATCH, STEPS = 64, 150
"""Batches of 64 images of 224x224x3 uint8, each newly allocated by a worker: 9.6 MB."""
CONVOLUTIONS = 24
"""Of a step, forward and backward, to take 5 to 10 ms."""
PROCESSES = max(1, len(os.sched_getaffinity(0)) - 2)

read = ROWS["fresh-uint8"].read


def expected(k: int) -> list[tuple[int, int]]:
    """The sum and the number of each row of batch ``k``."""
    rows = [read(i) for i in range(k * BATCH, (k + 1) * BATCH)]
    return [(int(image.sum(dtype=np.int64)), int(number)) for image, number in rows]


def checked(batches: Batches, sums: Callable[[Any], Any]) -> Batches:
    """Return the passes, after one whose every row was compared, while the next were on their way.

    Batches are kept until three others have arrived: so a transfer from memory that is used again
    too early would be found.
    """
    kept = list[tuple[int, Any]]()
    count = 0
    for k, batch in enumerate(batches()):
        kept.append((k, batch))
        count += 1
        if len(kept) > 3:
            first, arrived = kept.pop(0)
            _compare(first, arrived, sums)
    for k, batch in kept:
        _compare(k, batch, sums)
    if count != STEPS:
        raise SystemExit(f"{count} batches came of {STEPS}")
    return batches


def _compare(k: int, batch: Any, sums: Callable[[Any], Any]) -> None:
    images, numbers = sums(batch[0]), np.asarray(batch[1].tolist())
    if list(zip(images.tolist(), numbers.tolist(), strict=True)) != expected(k):
        raise SystemExit(f"batch {k} is wrong on the device")


def _flow() -> fl.Flow[Any, Any]:
    rows = fl.from_range(STEPS * BATCH).map(read)
    return rows.batch(BATCH).prefetch(procs=PROCESSES)


class _Dataset:
    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, i: int) -> tuple[NDArray[Any], int]:
        return read(i)


def _loader(pinned: bool) -> Any:
    data: Any = import_module("torch.utils.data")
    return data.DataLoader(
        _Dataset(), BATCH, num_workers=PROCESSES, persistent_workers=True, pin_memory=pinned
    )


# -- PyTorch ---------------------------------------------------------------------------------------


def _torch_sums(images: Any) -> Any:
    return images.flatten(1).sum(1, dtype=import_module("torch").int64)


def _torch_batches(who: str) -> Batches:
    if who == "flowdsl":
        ours = _flow().to_torch("cuda")
        return lambda: iter(ours)
    loader = _loader(pinned=True)
    return lambda: (tuple(x.to("cuda", non_blocking=True) for x in batch) for batch in iter(loader))


def _torch_step() -> Step:
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    nn = torch.nn
    layers = [nn.Conv2d(3, 64, 7, 4, 3)]
    for _ in range(CONVOLUTIONS):
        layers += [nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    net = net.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)

    def step(batch: Any) -> object:
        images, numbers = batch
        with torch.autocast("cuda", torch.bfloat16):
            x = images.permute(0, 3, 1, 2).float() / 255
            loss = nn.functional.cross_entropy(net(x), numbers % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _torch_fed(who: str) -> Pass:
    batches, step = checked(_torch_batches(who), _torch_sums), _torch_step()
    return lambda: (step(batch) for batch in batches())


def _torch_constant() -> Pass:
    torch, step = import_module("torch"), _torch_step()
    rows = [read(i) for i in range(BATCH)]
    images = torch.from_numpy(np.stack([image for image, _ in rows])).cuda()
    numbers = torch.arange(BATCH).cuda()
    return lambda: (step((images, numbers)) for _ in range(STEPS))


def _torch_arrived(who: str) -> Pass:
    """No step: each batch only arrives on the device."""
    torch, batches = import_module("torch"), checked(_torch_batches(who), _torch_sums)

    def arrived() -> Iterator[None]:
        for _ in batches():
            torch.cuda.current_stream().synchronize()
            yield

    return arrived


# -- JAX -------------------------------------------------------------------------------------------


def _jax_sums(images: Any) -> Any:
    return np.asarray(images).reshape(len(images), -1).sum(1, dtype=np.int64)


def _jax_batches(who: str) -> Batches:
    jax: Any = import_module("jax")
    if who == "flowdsl":
        ours = _flow().to_jax()
        return lambda: iter(ours)
    loader = _loader(pinned=False)
    return lambda: (jax.device_put(tuple(x.numpy() for x in batch)) for batch in iter(loader))


def _jax_step() -> Step:
    jax: Any = import_module("jax")
    jnp, keys = jax.numpy, jax.random.split(jax.random.key(0), CONVOLUTIONS + 1)
    params = [jax.random.normal(keys[0], (7, 7, 3, 64)) / 12]
    params += [jax.random.normal(key, (3, 3, 64, 64)) / 24 for key in keys[1:]]

    def convolved(x: Any, kernel: Any, stride: int) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            kernel.astype(x.dtype),
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def loss_of(params: Any, images: Any, numbers: Any) -> Any:
        x = convolved(images.astype(jnp.bfloat16) / 255, params[0], 4)
        for kernel in params[1:]:
            x = jax.nn.relu(convolved(x, kernel, 1))
        return ((x.astype(jnp.float32).mean((1, 2, 3)) - numbers % 10) ** 2).mean()

    @jax.jit  # type: ignore[untyped-decorator]  # JAX comes by its name here
    def trained(params: Any, images: Any, numbers: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, images, numbers)
        return [p - 1e-4 * g for p, g in zip(params, grads, strict=True)], loss

    def step(batch: Any) -> object:
        nonlocal params
        params, loss = trained(params, *batch)
        return float(loss)

    return step


def _jax_fed(who: str) -> Pass:
    batches, step = checked(_jax_batches(who), _jax_sums), _jax_step()
    return lambda: (step(batch) for batch in batches())


def _jax_constant() -> Pass:
    jax: Any = import_module("jax")
    step, rows = _jax_step(), [read(i) for i in range(BATCH)]
    batch = jax.device_put((np.stack([image for image, _ in rows]), np.arange(BATCH)))
    return lambda: (step(batch) for _ in range(STEPS))


def _steps(fed: Callable[[str], Pass], constant: Callable[[], Pass]) -> Work:
    by_who = {who: partial(fed, who) for who in ("flowdsl", "loader")}
    return Work(STEPS, {**by_who, "constant": constant}, goal=0.97, of="constant")


WORKS = {
    "PyTorch, a step on a GPU": _steps(_torch_fed, _torch_constant),
    "PyTorch, images on a GPU": Work(
        STEPS * BATCH,
        {who: partial(_torch_arrived, who) for who in ("flowdsl", "loader")},
    ),
    "JAX, a step on a GPU": _steps(_jax_fed, _jax_constant),
}

NEEDS = {"loader": "torch"}


def main() -> None:
    run("bench.gpu", __doc__, "steps or rows", WORKS, NEEDS, Path("out/gpu.json"))


if __name__ == "__main__":
    main()

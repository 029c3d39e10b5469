"""Feeding other frameworks from a flow: exactly these types, as in ``good``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import jax
import numpy as np
import torch
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.jax.loader import JaxLoader
from flowdsl.torch.loader import TorchLoader


def image(i: int) -> NDArray[np.float32]:
    return np.full((2, 2), i, np.float32)


def sample(i: int) -> tuple[NDArray[np.float32], int]:
    return image(i), i % 2


def three(i: int) -> tuple[NDArray[np.float32], int, float]:
    return image(i), i, 0.5


def named(i: int) -> dict[str, NDArray[np.float32]]:
    return {"x": image(i), "y": image(i)}


def texts(i: int) -> tuple[NDArray[np.float32], str]:
    return image(i), "text"


numbers = fl.from_range(6)

if TYPE_CHECKING:  # Keras takes seconds to import
    from flowdsl.keras.fit import Fit

    assert_type(fl.keras.Fit(numbers.map(sample).batch(2)), Fit)

if TYPE_CHECKING:  # what follows needs a cluster
    import ray.data

    assert_type(numbers.prefetch(actors="auto"), fl.Flow[int, fl.Exact])
    assert_type(numbers.replicate(actors=2), fl.Flow[int, fl.Exact | fl.Resampled])
    assert_type(numbers.to_ray(parts=2), ray.data.Dataset)
    rows = ray.data.range(3)
    assert_type(fl.from_ray(rows), fl.Flow[dict[str, Any], fl.Reordered | fl.Unsized])
    assert_type(fl.from_ray(rows, ordered=True), fl.Flow[dict[str, Any], fl.Unsized])
    assert_type(numbers.map(sample).batch(2).to_keras(), Fit)

assert_type(numbers.map(image).to_torch(), TorchLoader[torch.Tensor])
assert_type(numbers.batch(2).to_torch(), TorchLoader[torch.Tensor])
assert_type(numbers.map(sample).batch(2).to_torch(), TorchLoader[tuple[torch.Tensor, torch.Tensor]])
assert_type(
    numbers.map(three).batch(2).to_torch("cpu", copy=True),
    TorchLoader[tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
)
assert_type(numbers.map(named).batch(2).to_torch(), TorchLoader[dict[str, torch.Tensor]])
assert_type(numbers.map(texts).batch(2).to_torch(), TorchLoader[Any])
assert_type(numbers.map(image).to_jax(), JaxLoader[jax.Array])
assert_type(
    numbers.map(sample).batch(2).to_jax(jax.devices()[0]), JaxLoader[tuple[jax.Array, jax.Array]]
)
assert_type(numbers.map(named).batch(2).to_jax(), JaxLoader[dict[str, jax.Array]])

for x, y in numbers.map(sample).batch(2).to_torch():
    assert_type(x, torch.Tensor)
    loss = torch.nn.functional.cross_entropy(x.flatten(1), y)
for u, v in numbers.map(sample).batch(2).to_jax():
    assert_type(v, jax.Array)
    total = u.sum() + v.mean()

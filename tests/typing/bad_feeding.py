"""Mistakes in feeding other frameworks, as in ``bad``."""

from __future__ import annotations

import jax
import torch

import flowdsl as fl
from tests.typing.good_feeding import image, sample

numbers = fl.from_range(6)


def train(x: torch.Tensor) -> None:
    del x


def train_jax(x: jax.Array) -> None:
    del x


tensors = iter(numbers.map(image).to_torch())
pairs = iter(numbers.map(sample).batch(2).to_jax())
arrays = iter(numbers.map(image))

# -- arguments -------------------------------------------------------------------------------------
numbers.map(image).to_torch(pin_memory="yes")  # E: call-overload
numbers.map(image).to_torch(num_workers=2)  # E: call-overload
numbers.map(image).to_torch(remainder="pad")  # E: call-overload
numbers.map(image).to_jax("cpu")  # E: call-overload
numbers.map(image).to_jax(pin_memory=True)  # E: call-overload

# -- what comes ------------------------------------------------------------------------------------
train_jax(next(tensors))  # E: arg-type
train(next(pairs)[0])  # E: arg-type
train(next(arrays))  # E: arg-type

"""to_jax on a GPU; skipped on machines without one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import flowdsl as fl

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")

SIDE = 512


def image(i: int) -> Any:
    return np.full((SIDE, SIDE), i, np.int32), i


@pytest.mark.parametrize("ahead", [1, 2, 4])
@pytest.mark.parametrize("procs", [0, 2])
def test_each_batch_is_right_although_memory_is_used_again(ahead: int, procs: int) -> None:
    flow = fl.from_range(200).map(image).batch(4)
    flow = flow.prefetch(procs=procs) if procs else flow
    kept = list[Any]()
    weights = jax.device_put(np.ones((4096, 4096), np.float32))
    for images, numbers in flow.to_jax(ahead=ahead):
        assert {device.platform for device in images.devices()} == {"gpu"}
        weights = (weights @ weights) / 4096  # keeps the device busy
        kept.append((images.sum((1, 2)), numbers))
        del images
    for k, (sums, numbers) in enumerate(kept):
        assert numbers.tolist() == list(range(4 * k, 4 * k + 4))
        assert sums.tolist() == [n * SIDE * SIDE for n in numbers.tolist()]


def test_a_batch_can_stay_on_the_host() -> None:
    (cpu,) = jax.devices("cpu")[:1]
    (x,) = fl.from_range(1).map(lambda _: np.zeros(3)).to_jax(cpu)
    assert x.devices() == {cpu}

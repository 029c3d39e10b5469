"""to_torch on a CUDA device; skipped on machines without one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flowdsl as fl

torch = pytest.importorskip("torch")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch for CUDA warns of a machine without its driver
    HAS_CUDA = torch.cuda.is_available()

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")

SIDE = 512


def image(i: int) -> Any:
    return np.full((SIDE, SIDE), i, np.int32), i


def busy(milliseconds: int) -> None:
    """Keep the current stream busy, so that the host is ahead of the device."""
    torch.cuda._sleep(milliseconds * 1_000_000)


@pytest.mark.parametrize("ahead", [1, 2, 4])
@pytest.mark.parametrize("procs", [0, 2])
def test_each_batch_is_right_although_memory_is_used_again(ahead: int, procs: int) -> None:
    flow = fl.from_range(200).map(image).batch(4)
    flow = flow.prefetch(procs=procs) if procs else flow
    kept = list[Any]()
    for k, (images, numbers) in enumerate(flow.to_torch("cuda", ahead=ahead)):
        busy(2)
        sums = images.sum((1, 2), dtype=torch.int64)  # runs after the next batch has arrived
        kept.append((k, sums, numbers))
        del images
    for k, sums, numbers in kept:
        assert numbers.tolist() == list(range(4 * k, 4 * k + 4))
        assert sums.tolist() == [n * SIDE * SIDE for n in numbers.tolist()]


def test_a_batch_that_another_stream_reads_is_not_overwritten() -> None:
    stream = torch.cuda.Stream()
    sums = list[Any]()
    with torch.cuda.stream(stream):
        for images, _ in fl.from_range(200).map(image).batch(4).to_torch("cuda"):
            busy(2)
            sums.append(images.sum((1, 2), dtype=torch.int64))
            del images
    stream.synchronize()
    found = torch.cat(sums).tolist()
    assert found == [n * SIDE * SIDE for n in range(200)]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, torch.device("cuda", 0)])
def test_devices(device: Any) -> None:
    (x,) = fl.from_range(1).map(lambda i: np.full(3, i, np.float32)).to_torch(device)
    assert x.device == torch.device("cuda", 0)
    assert x.tolist() == [0, 0, 0]


def test_structures_and_texts() -> None:
    rows = fl.from_range(4).map(lambda i: {"x": np.float32(i), "name": str(i)}).batch(2)
    first, second = rows.to_torch("cuda")
    assert first["x"].is_cuda
    assert first["x"].tolist() == [0, 1]
    assert second["name"] == ["2", "3"]


def test_pinned_memory_without_a_device() -> None:
    (x,) = fl.from_range(1).map(lambda _: np.zeros(3)).to_torch(pin_memory=True)
    assert x.is_pinned()
    assert not x.is_cuda


def test_a_resumed_loader_continues() -> None:
    flow = fl.from_range(20).shuffle(seed=1).map(image).batch(2).prefetch(procs=2)
    whole = [numbers.tolist() for _, numbers in flow.to_torch("cuda")]
    loader = flow.to_torch("cuda")
    batches = iter(loader)
    before = [next(batches)[1].tolist() for _ in range(3)]
    resumed = flow.to_torch("cuda")
    resumed.load_state_dict(loader.state_dict())
    assert before + [numbers.tolist() for _, numbers in resumed] == whole


def test_an_error_names_the_element() -> None:
    flow = fl.from_range(9).map(lambda i: np.full(3, 1 // (i - 5)))
    with pytest.raises(fl.ElementError, match="element 5"):
        for _ in flow.to_torch("cuda"):
            pass

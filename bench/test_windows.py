"""Windows over an array in memory, and the same slices by hand: no assertions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

import flowdsl as fl

Array = NDArray[np.float64]
SIZE, BATCH = 49, 32


def by_hand(array: Array) -> Iterator[Array]:
    last = len(array) - SIZE + 1
    for begin in range(0, last, BATCH):
        yield np.stack([array[i : i + SIZE] for i in range(begin, min(begin + BATCH, last))])


def as_views(array: Array) -> Iterable[Any]:
    return fl.from_items(array).window(SIZE, stack=True).batch(BATCH)


@pytest.mark.parametrize("windows", [by_hand, as_views], ids=lambda windows: windows.__name__)
def test_batches_of_windows(
    benchmark: BenchmarkFixture, windows: Callable[[Array], Iterable[Array]]
) -> None:
    array = np.random.default_rng(0).random((20_000, 3))
    benchmark.pedantic(  # type: ignore[no-untyped-call]  # it has no types
        lambda: deque(windows(array), maxlen=0), rounds=9, warmup_rounds=2
    )

"""Memory of large arrays is used again once nobody refers to it, and not before."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.elements import recycled
from flowdsl.elements.recycled import RecycledMemory

ROWS = (4, 1 << 20)
UINT8 = np.dtype(np.uint8)


def address(array: object) -> int:
    return int(np.asarray(array).__array_interface__["data"][0])


def test_memory_of_a_collected_array_is_used_again() -> None:
    memory = RecycledMemory()
    first = memory.allocate(ROWS, UINT8)
    where = address(first)
    del first
    assert address(memory.allocate(ROWS, UINT8)) == where


@pytest.mark.parametrize(
    "view",
    [lambda x: x[2], lambda x: x.reshape(-1)[6:].view(np.uint16), memoryview, np.asarray],
    ids=["row", "view", "memoryview", "itself"],
)
def test_memory_is_not_used_again_while_there_is_a_view(view: object) -> None:
    assert callable(view)
    memory = RecycledMemory()
    first = memory.allocate(ROWS, UINT8)
    first[:] = 7
    kept = view(first)
    del first
    gc.collect()
    others = [memory.allocate(ROWS, UINT8) for _ in range(3)]
    for other in others:
        other[:] = 1
    assert np.all(np.asarray(kept).view(np.uint8) == 7)


def test_memory_of_several_sizes_is_used_again() -> None:
    memory = RecycledMemory()
    sizes = [(4, 1 << 20), (2, 1 << 20), (4, 1 << 20), (3, 1 << 20)]
    with mock.patch.object(recycled, "_new", wraps=recycled._new) as new:
        for _ in range(10):
            batch = [memory.allocate(size, UINT8) for size in sizes]
            del batch
    assert len(new.mock_calls) == len(sizes)


def test_memory_beyond_a_limit_is_not_kept() -> None:
    memory = RecycledMemory()
    arrays = [memory.allocate((32, 1 << 20), UINT8) for _ in range(6)]
    del arrays
    assert sum(map(len, memory._free)) <= 128 << 20


def test_a_cache_keeps_batches_without_a_copy() -> None:
    flow = fl.from_range(16).map(lambda i: np.full(1 << 18, i, np.uint8)).batch(8).cache()
    first, again = flow.collect(), flow.collect()
    assert [address(x) for x in first] == [address(x) for x in again]
    assert all(isinstance(x.base.base, mmap.mmap) for x in again if x.base is not None)


def test_a_cache_copies_what_is_in_a_file_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1 << 21))
    with open(tmp_path / "a", "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        flow = fl.from_range(1).map(lambda _: np.ndarray((1 << 21,), np.uint8, content)).cache()
        assert [int(x[0]) for x in flow] == [0]
        content[0] = 7
        assert [int(x[0]) for x in flow] == [0]
        gc.collect()


def test_arrays_of_another_size_or_small_ones_are_new() -> None:
    memory = RecycledMemory()
    memory.allocate(ROWS, UINT8)
    larger = memory.allocate((8, 1 << 20), UINT8)
    assert larger.nbytes == 8 << 20
    assert memory.allocate((3,), UINT8).base is None
    assert memory.allocate((65, 1 << 20), UINT8).base is None
    assert memory.allocate((1 << 18,), np.dtype(object)).dtype == object


def test_batches_that_a_consumer_keeps_are_never_overwritten() -> None:
    flow = fl.from_range(64).map(lambda i: np.full(1 << 18, i, np.uint8)).batch(8)
    for batches in (flow.collect(), flow.prefetch(threads=2).collect()):
        assert [int(x.min()) for x in batches] == [*range(0, 64, 8)]
        assert [int(x.max()) for x in batches] == [*range(7, 64, 8)]

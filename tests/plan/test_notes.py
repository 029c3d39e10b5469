"""Notes of explain() on chains that are slow by nature, or whose batches may surprise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowdsl as fl

AnyFlow = fl.Flow[Any, Any]


def notes(flow: AnyFlow) -> list[str]:
    return [line for line in flow.explain().splitlines() if line.startswith("note: ")]


@pytest.fixture
def table(tmp_path: Path) -> AnyFlow:
    pq.write_table(pa.table({"x": np.arange(20_000)}), tmp_path / "a.parquet", row_group_size=1000)
    return fl.from_parquet(tmp_path / "a.parquet")


READ_AT_RANDOM: list[Callable[[AnyFlow], AnyFlow]] = [
    lambda f: f.shuffle(seed=1),
    lambda f: f.map(dict).shuffle(seed=1).batch(4),
    lambda f: f.batch(2).shuffle(seed=1),
    lambda f: f.take(18_000).shuffle(seed=1).prefetch(procs=2),
]


@pytest.mark.parametrize("chain", READ_AT_RANDOM)
def test_a_full_shuffle_over_row_groups_is_noted(
    table: AnyFlow, chain: Callable[[AnyFlow], AnyFlow]
) -> None:
    assert notes(chain(table)) == [
        (
            "note: shuffle(seed=1) reads 1,000 rows of from_parquet('a.parquet') for nearly each "
            "of its elements; in blocks each is read once: .shuffle(seed=1, block=1000)"
            ".shuffle(buffer=1000, seed=2)"
        )
    ]


READ_IN_BLOCKS: list[Callable[[AnyFlow], AnyFlow]] = [
    lambda f: f,
    lambda f: f.shuffle(seed=1, block=1000).shuffle(buffer=1000, seed=2),
    lambda f: f.shuffle(buffer=1000, seed=1),
    lambda f: f.batch(1000).shuffle(seed=1),
    lambda f: f.take(2000).shuffle(seed=1),
    lambda f: f.map(dict).batch(4),
    lambda f: f.filter(bool).shuffle(buffer=9, seed=1),
    lambda f: fl.from_range(10**6).shuffle(seed=1),
]


@pytest.mark.parametrize("chain", READ_IN_BLOCKS)
def test_other_chains_are_not_noted(table: AnyFlow, chain: Callable[[AnyFlow], AnyFlow]) -> None:
    assert notes(chain(table)) == []


@pytest.mark.parametrize(("group", "count"), [(9000, 1), (10_000, 0)])
def test_a_file_of_two_row_groups_is_not_noted(tmp_path: Path, group: int, count: int) -> None:
    pq.write_table(pa.table({"x": np.arange(20_000)}), tmp_path / "a.parquet", row_group_size=group)
    assert len(notes(fl.from_parquet(tmp_path / "a.parquet").shuffle(seed=1))) == count


def double(x: Any) -> Any:
    return 2 * x


def test_a_function_of_each_row_of_a_large_table_is_noted() -> None:
    column = np.zeros(10**6, np.uint8)
    assert notes(fl.from_items(column).map(double).batch(32)) == [
        (
            "note: map(double) runs for each of the 1,000,000 rows of from_items(1000000 items); "
            "if it works on columns as well, write it after batch(32), which then copies slices of "
            "the columns"
        )
    ]
    for flow in (
        fl.from_items(column).batch(32).map(double),
        fl.from_items(column).filter(double).batch(32),
        fl.from_items(column).map(double),
        fl.from_items(column[:-1]).map(double).batch(32),
        fl.from_range(10**6).map(double).batch(32),
        fl.from_items(range(10**6)).map(double).batch(32),
    ):
        assert notes(flow) == []


def test_a_batch_of_lists_of_arrays_is_noted() -> None:
    image = np.zeros((2, 2))
    flow = fl.from_items([[image, image + 1]] * 2)
    assert notes(flow.batch(2)) == [
        (
            "note: batch(2) makes one array of elements that are lists of arrays; with .map(tuple) "
            "below it, each array of a list is a component, with a batch of its own"
        )
    ]
    assert flow.batch(2).collect()[0].shape == (2, 2, 2, 2)
    first, second = flow.map(tuple).batch(2).collect()[0]
    assert (first.shape, second.max()) == ((2, 2, 2), 1)
    for other in (
        flow,
        flow.map(tuple).batch(2),
        flow.batch(2, collate=list),
        fl.from_items([[1, 2]]).batch(2),
        fl.from_items([[np.float32(1)]]).batch(2),
        fl.from_items([{"x": [image]}]).batch(2),
        fl.from_items([["a"]]).batch(2),
    ):
        assert notes(other) == []

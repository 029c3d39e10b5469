"""Batches of rows that are in arrays, below operators that choose and move rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError
from flowdsl.ops.batching import Batch
from flowdsl.plan.lower import plan_of
from flowdsl.runtime.run import Run
from flowdsl.testing.elements import same

COUNT = 600

Change = Callable[[Any], Any]
changes: st.SearchStrategy[Change] = st.one_of(
    st.integers(0, 90).map(lambda n: lambda flow: flow.skip(n)),
    st.integers(1, 300).map(lambda n: lambda flow: flow.take(n)),
    st.tuples(st.integers(-90, 90), st.sampled_from([-7, -1, 1, 2, 5])).map(
        lambda pair: lambda flow: flow[pair[0] :: pair[1]]
    ),
    st.integers(0, 2).map(lambda i: lambda flow: flow.shard(3, i)),
    st.integers(0, 9).map(lambda seed: lambda flow: flow.shuffle(seed=seed)),
    st.integers(1, 40).map(lambda n: lambda flow: flow.shuffle(seed=1, block=n)),
    st.integers(0, 9).map(lambda seed: lambda flow: flow.split(0.5, seed=seed)[1]),
    st.just(lambda flow: flow.repeat(2)),
    st.just(lambda flow: flow.repeat_each(2)),
)


def row(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "weight": np.float32(i / 8),
        "name": "x" * (i % 7),
        "box": np.arange(i, i + 4, dtype=np.int16),
    }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    fl.from_range(COUNT).map(row).write_parquet(path, row_group=17)
    return fl.from_parquet(path)


def in_memory() -> Any:
    ids = np.arange(COUNT)
    return fl.from_items({"id": ids, "pair": (ids / 8, ids.astype(np.uint8).reshape(-1, 1))})


def identity(x: object) -> object:
    return x


@given(
    st.lists(changes, max_size=3),
    st.sampled_from([1, 7, 40, 128, 200]),
    st.integers(0, 2),
    st.booleans(),
)
def test_they_equal_batches_of_the_rows(
    stored: Any, chosen: list[Change], n: int, epoch: int, is_stored: bool
) -> None:
    flow = stored if is_stored else in_memory()
    for change in chosen:
        flow = change(flow)
    of_rows = list(flow.map(identity).batch(n).take(20).epoch(epoch))
    of_columns = list(flow.batch(n).take(20).epoch(epoch))
    assert len(of_columns) == len(of_rows)
    for column_batch, row_batch in zip(of_columns, of_rows, strict=True):
        assert same(column_batch, row_batch)
        for name, column in column_batch.items():
            for array in column if isinstance(column, tuple) else [column]:
                assert isinstance(array, list) or array.flags.writeable, name


@given(
    st.integers(1, 40),
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 300), st.integers(1, 20)),
        min_size=1,
        max_size=4,
    ),
)
@example(n=8, runs=[(0, 0, 5), (1, 6, 1)])  # which the positions of another epoch would cover
@example(n=8, runs=[(0, 10, 5), (0, 8, 4)])  # back
def test_they_are_read_in_any_order(n: int, runs: list[tuple[int, int, int]]) -> None:
    """Positions are computed ahead while batches follow each other: here they jump at times."""
    node = in_memory().shuffle(seed=3).batch(n).node
    assert isinstance(node, Batch)
    views = node.open_views()
    assert views is not None
    of_epoch = [list(in_memory().shuffle(seed=3).epoch(epoch)) for epoch in (0, 1)]
    for epoch, first, count in runs:
        for i in range(first, min(first + count, -(-COUNT // n))):
            ids = [row["id"] for row in of_epoch[epoch][i * n : i * n + n]]
            assert views(epoch, i)["id"].tolist() == ids


@pytest.mark.parametrize(
    "change",
    [
        lambda flow: flow.skip(3),
        lambda flow: flow.split(0.8, seed=1)[0],
        lambda flow: flow.shuffle(seed=1, block=17),
        lambda flow: flow[::-2],
    ],
)
def test_they_are_read_as_columns(stored: Any, change: Change) -> None:
    node = change(stored).batch(170).node
    assert isinstance(node, Batch)
    views = node.open_views()
    assert views is not None
    assert views(0, 0) is not None


def test_rows_that_are_far_apart_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    fl.from_range(10_000).map(lambda i: {"id": i}).write_parquet(path, row_group=10)
    node = fl.from_parquet(path).shuffle(seed=1).batch(200).node
    assert isinstance(node, Batch)
    views = node.open_views()
    assert views is not None
    assert views(0, 1) is None
    in_arrays = fl.from_items({"id": np.arange(10_000)}).shuffle(seed=1).batch(200).node
    assert isinstance(in_arrays, Batch)
    views = in_arrays.open_views()
    assert views is not None
    assert len(views(0, 1)["id"]) == 200  # a span of an array in memory costs nothing


def test_few_of_many_rows_are_read_one_by_one(stored: Any) -> None:
    for flow in (stored[::50].batch(200), stored[::3].batch(16)):
        views = flow.node.open_views()
        assert views is not None
        assert views(0, 0) is None


def test_few_consecutive_rows_are_a_slice(stored: Any) -> None:
    views = stored.skip(1).batch(16).node.open_views()
    assert len(views(0, 0)["id"]) == 16


def test_a_row_that_does_not_stack_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = [{"box": np.arange(4 if i != 300 else 5)} for i in range(600)]
    fl.from_items(rows).write_parquet(path, row_group=10)
    flow = fl.from_parquet(path)[::-1].batch(130)
    got: list[Any] = []
    with pytest.raises(ElementError, match=r"batch\(130\) failed on element 2 .*row 339 .*row 210"):
        got.extend(flow.epoch(0))
    assert len(got) == 2


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("threads", [0, 1])
def test_a_profile_times_them_as_they_run(shuffled: bool, threads: int) -> None:
    """Not row by row, which takes several times as long."""
    flow = in_memory().shuffle(seed=1).batch(40) if shuffled else in_memory().batch(40)
    if threads:
        flow = flow.prefetch(threads=threads)
    run = Run(plan_of(flow.node), profile=True)
    assert all(map(same, run, flow))
    (stage,) = run.statistics().stages
    (cost,) = stage.costs
    assert (cost.title, cost.calls) == ("batch(40)", COUNT // 40)
    assert cost.seconds > 0


def test_a_profile_counts_batches_that_are_made_row_by_row(stored: Any) -> None:
    run = Run(plan_of(stored.shuffle(seed=1).batch(40).node), profile=True)
    assert len(list(run)) == COUNT // 40
    (stage,) = run.statistics().stages
    calls = {cost.title: cost.calls for cost in stage.costs}
    assert calls["batch(40)"] == COUNT // 40


@pytest.mark.parametrize(
    "view",
    [
        np.asfortranarray,
        lambda x: x[::-1],
        lambda x: x[:, :2],
        lambda x: x[:, 0],
        lambda x: np.broadcast_to(x[0], (2**33, 3)),  # a copy would not fit into memory
    ],
    ids=["Fortran", "backwards", "columns", "a column", "broadcast"],
)
def test_only_rows_of_a_batch_are_copied(view: Callable[[Any], Any]) -> None:
    rows = view(np.arange(600.0).reshape(200, 3))
    flow = fl.from_items({"x": rows, "id": np.arange(len(rows)) if len(rows) < 999 else rows})
    for batch in flow.shuffle(seed=1).batch(32).take(3):
        assert batch["x"].flags.c_contiguous
        if len(rows) < 999:
            assert np.array_equal(batch["x"], rows[batch["id"]])


def test_the_greatest_positions_of_an_endless_flow() -> None:
    flow = fl.from_items(np.arange(7)).shuffle(seed=1).repeat().batch(3)
    assert same(flow.at(2**61), flow.map(identity).at(2**61))

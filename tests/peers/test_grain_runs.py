"""Checkpoints, workers, samplers and files in the tests of Grain, as flows."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, check_resumes, table

TEN = fl.from_range(10)
TEXTS = fl.from_items([[1, 1, 1], [2, 2], [3], [4, 4], [5, 5, 5], [6]])


@pytest.mark.parametrize(
    "flow",
    [
        pytest.param(TEN.batch(3), id="batch"),
        pytest.param(TEN.cache().repeat(2), id="cache"),
        pytest.param(TEN.concat(TEN), id="concatenate"),
        pytest.param(TEN.enumerate(), id="map_with_index"),
        pytest.param(TEN.filter(lambda i: i % 2 == 0), id="filter"),
        pytest.param(TEN.flat_map(range), id="flat_map"),
        pytest.param(TEN.interleave(TEN, weights=[2, 1]), id="mix"),
        pytest.param(TEN.interleave_map(range, cycle=3), id="interleave"),
        pytest.param(TEN.take(7), id="limit"),
        pytest.param(TEN.map(lambda i: {"x": i}), id="map"),
        pytest.param(TEN.random_map(lambda i, rng: i + int(rng.integers(9))), id="random_map"),
        pytest.param(TEN.batch(4).unbatch().batch(3), id="rebatch"),
        pytest.param(TEN.repeat(3), id="repeat"),
        pytest.param(TEN.shuffle(seed=1).repeat(2), id="shuffle"),
        pytest.param(TEN.shuffle(buffer=3, seed=1), id="window_shuffle"),
        pytest.param(TEN[1::2], id="slice"),
        pytest.param(TEXTS.pack(4).map(lambda row: row.tokens), id="concat_then_split"),
        pytest.param(TEXTS.pack(4, "first_fit").map(lambda row: row.tokens), id="first_fit"),
        pytest.param(TEN.prefetch(threads=2), id="prefetch"),
        pytest.param(TEN.zip(TEN), id="zip"),
    ],
)
def test_an_iterator_is_restored_as_in_grain(flow: fl.Flow[Any, Any]) -> None:
    """Grain: it.set_state(state), for each transformation."""
    check_resumes(flow, (0, 1, 2))


def test_a_state_is_restored_twice_and_in_a_run_that_has_begun() -> None:
    """Grain: it.set_state(state) after next(it), and again."""
    run = iter(TEN)
    next(run)
    state = run.state_dict()
    assert [list(TEN.resume(state)) for _ in range(2)] == [list(range(1, 10))] * 2


def test_a_state_at_the_end_has_nothing_left() -> None:
    """Grain: it.set_state(state) of an iterator that has ended."""
    run = iter(TEN)
    list(run)
    assert list(TEN.resume(run.state_dict())) == []


def test_a_state_has_no_data() -> None:
    """Grain: the state of a DataLoader over an in-memory source is small."""
    flow = fl.from_items(np.arange(10_000)).shuffle(seed=1)
    run = iter(flow)
    next(run)
    assert len(json.dumps(run.state_dict())) < 1000


def test_a_state_of_another_dataset_is_refused() -> None:
    """Grain: set_state with an invalid state."""
    state = iter(TEN.map(lambda i: -i)).state_dict()
    with pytest.raises(fl.StateMismatch):
        TEN.batch(2).resume(state)


def test_an_iterator_begins_at_a_position() -> None:
    """Grain: set_next_index(it, 7)."""
    flow = TEN.shuffle(seed=1).batch(2)
    assert [flow.at(i).tolist() for i in (3, 4)] == [x.tolist() for x in flow.skip(3)]


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (2, 2)])
def test_a_job_continues_on_another_number_of_shards(before: int, after: int) -> None:
    """Grain: ElasticIterDataset, whose shards become fewer or more."""
    job = fl.from_range(16).shuffle(seed=1)
    runs = [iter(job.shard(before, i)) for i in range(before)]
    seen = [next(run) for run in runs for _ in range(4 // before)]
    rest = [x for i in range(after) for x in job.shard(after, i).resume(runs[0].state_dict())]
    assert sorted(seen + rest) == list(range(16))


def plus(i: int, rng: np.random.Generator) -> int:
    return i + int(rng.integers(100))


def dies_once(i: int) -> int:
    if i == 5 and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def exits(i: int) -> int:
    if i == 5:
        os._exit(3)
    return i


@table(
    Case(
        "workers change neither elements nor their order",
        "ds.mp_prefetch(MultiprocessingOptions(2))",
        lambda: TEN.map(lambda i: -i).prefetch(threads=3),
        [-i for i in range(10)],
    ),
    Case(
        "workers draw the same random numbers",
        "ds.random_map(f).mp_prefetch(...)",
        lambda: (
            list(TEN.random_map(plus, seed=1).prefetch(threads=2))
            == list(TEN.random_map(plus, seed=1))
        ),
        True,
    ),
    Case(
        "workers keep the order of a filter and a batch",
        "ds.filter(f).batch(2).mp_prefetch(...)",
        lambda: TEN.filter(lambda i: i % 3 > 0).batch(4).prefetch(procs=2),
        [[1, 2, 4, 5], [7, 8]],
    ),
    Case(
        "several workers read one stream",
        "iter source.mp_prefetch(2 workers)",
        lambda: fl.from_iterable(lambda: range(4)).map(lambda i: -i).prefetch(procs=2),
        [0, -1, -2, -3],
    ),
    Case(
        "an empty dataset needs no worker",
        "range(0).mp_prefetch(...)",
        lambda: fl.from_range(0).prefetch(procs=2),
        [],
    ),
    Case(
        "an error of a worker is raised here",
        "raising.mp_prefetch(...)",
        lambda: TEN.map(lambda i: 1 // (i - 4)).prefetch(procs=2),
        Refusal(fl.ElementError, "row 4 of from_range(10)"),
    ),
    Case(
        "threads change neither elements nor their order",
        "ds.to_iter_dataset(ReadOptions(num_threads=2))",
        lambda: TEN.map(lambda i: -i).prefetch(threads=2),
        [-i for i in range(10)],
    ),
    Case(
        "a negative number of workers is refused",
        "MultiprocessingOptions(num_workers=-1)",
        lambda: TEN.prefetch(procs=-1),
        Refusal(fl.InvalidFlow, "procs"),
    ),
    Case(
        "a random loader has all elements in each epoch",
        "DataLoader(source, IndexSampler(10, shuffle=True, num_epochs=2))",
        lambda: (lambda x: sorted(x[:10]) == sorted(x[10:]))(
            list(TEN.shuffle(seed=1).repeat(2).map(lambda i: i))
        ),
        True,
    ),
    Case(
        "a loader reads a shard",
        "IndexSampler(10, ShardOptions(1, 3))",
        lambda: TEN.shard(3, 1),
        [1, 4, 7],
    ),
    Case(
        "a shard drops what is left",
        "ShardOptions(0, 3, drop_remainder=True)",
        lambda: [len(TEN.shard(3, i, even="drop")) for i in range(3)],
        [3, 3, 3],
    ),
    Case(
        "shards of a shuffled dataset are all of it",
        "IndexSampler(shuffle=True, shard_options=...)",
        lambda: sorted(x for i in range(3) for x in TEN.shuffle(seed=1).shard(3, i)),
        list(range(10)),
    ),
    Case(
        "shards are batched",
        "DataLoader(operations=[Batch(2)], shard_options=...)",
        lambda: [
            TEN.shard(2, i).batch(2, drop_remainder=True).collect()[0].tolist() for i in range(2)
        ],
        [[0, 2], [1, 3]],
    ),
    Case(
        "a loader maps parts of elements",
        "DataLoader(operations=[FlatMap()])",
        lambda: fl.from_range(3).flat_map(lambda i: [i, i]),
        [0, 0, 1, 1, 2, 2],
    ),
    Case(
        "a shard beyond the last is refused",
        "ShardOptions(3, 3)",
        lambda: TEN.shard(3, 3),
        Refusal(fl.InvalidFlow, "shard"),
    ),
)
def test_workers_and_samplers_have_the_outcome_of_grain(case: Case) -> None:
    check(case)


@pytest.mark.long
def test_the_death_of_a_worker_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grain: a killed worker of mp_prefetch is an error, or a hang."""
    monkeypatch.chdir(tmp_path)
    assert TEN.map(dies_once).prefetch(procs=2).collect() == list(range(10))


@pytest.mark.long
def test_a_worker_that_exits_is_an_error() -> None:
    """Grain: ds.map(exits).mp_prefetch(...)."""
    with pytest.raises(fl.FlowError, match="row 5"):
        TEN.map(exits).prefetch(procs=1, deaths=1).collect()


def test_a_pass_over_workers_may_be_left_early() -> None:
    """Grain: break in a loop over ds.mp_prefetch(...)."""
    run = iter(TEN.prefetch(procs=1))
    assert next(run) == 0
    run.close()


def test_a_filter_counts_its_rows() -> None:
    """Grain: the execution summary, and filter_warn_threshold_ratio."""
    run = iter(TEN.filter(lambda i: i < 3).batch(2))
    list(run)
    (counted,) = run.statistics().filtered
    assert (counted.seen, counted.kept) == (10, 3)


def parquet(folder: Path) -> list[Path]:
    paths = [folder / "0.parquet", folder / "1.parquet"]
    for path, flow in zip(
        paths, [fl.from_items([{"x": 0}, {"x": 1}]), fl.from_items([{"x": 2}])], strict=True
    ):
        flow.write_parquet(path)
    return paths


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def tfrecord(folder: Path) -> Path:
    fl.from_items([b"a", b"b"]).write_tfrecord(folder / "a.tfrecord")
    return folder / "a.tfrecord"


def arrayrecord(folder: Path) -> Path:
    fl.from_items([b"a", b"b"]).write_arrayrecord(folder / "a.array_record")
    return folder / "a.array_record"


@table(
    Case(
        "rows of a Parquet file",
        "ParquetIterDataset(path)",
        lambda d: fl.from_parquet(parquet(d)[0]),
        [{"x": 0}, {"x": 1}],
    ),
    Case(
        "rows of several Parquet files",
        "ParquetIterDataset([p, q])",
        lambda d: fl.from_parquet(parquet(d)),
        [{"x": 0}, {"x": 1}, {"x": 2}],
    ),
    Case(
        "Parquet files are interleaved",
        "InterleaveIterDataset(files.map(ParquetIterDataset))",
        lambda d: fl.from_items(list(map(str, parquet(d)))).interleave_map(
            fl.from_parquet, cycle=2
        ),
        [{"x": 0}, {"x": 2}, {"x": 1}],
    ),
    Case(
        "Parquet files are sharded",
        "ParquetIterDataset with a shard",
        lambda d: fl.from_parquet(parquet(d)).shard(2, 1),
        [{"x": 1}],
    ),
    Case(
        "records of a TFRecord file",
        "TFRecordIterDataset(path)",
        lambda d: fl.from_tfrecord(tfrecord(d)),
        [b"a", b"b"],
    ),
    Case(
        "a TFRecord file is missing",
        "TFRecordIterDataset('missing')",
        lambda d: fl.from_tfrecord(d / "missing"),
        Refusal(fl.SourceError, "missing"),
    ),
    Case(
        "a TFRecord file is empty",
        "TFRecordIterDataset(empty)",
        lambda d: fl.from_tfrecord(written(d / "e.tfrecord", b"")),
        [],
    ),
    Case(
        "a TFRecord file is invalid",
        "TFRecordIterDataset(invalid)",
        lambda d: fl.from_tfrecord(written(d / "i.tfrecord", b"invalid data, and more")),
        Refusal(fl.SourceError, "i.tfrecord"),
    ),
    Case(
        "records of an ArrayRecord file",
        "ArrayRecordDataSource(path)",
        lambda d: fl.from_arrayrecord(arrayrecord(d)),
        [b"a", b"b"],
    ),
    Case(
        "an ArrayRecord file has random access",
        "ArrayRecordDataSource(path)[1]",
        lambda d: fl.from_arrayrecord(arrayrecord(d))[1],
        b"b",
    ),
)
def test_files_have_the_outcome_of_grain(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

"""What tensorpack's dataflow, and deepdoctection's, have tests or examples of, as flows."""

from __future__ import annotations

import json
import queue
from pathlib import Path
from typing import Any

import numpy as np

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, check_resumes, table

TEN = fl.from_range(10)
PAIRS = fl.from_items([("a", 1), ("b", 2), ("c", 3)])
ROWS: fl.Flow[dict[str, Any], fl.Exact] = fl.from_items([{"x": i, "y": str(i)} for i in range(3)])
A, B = fl.from_items("aaaa"), fl.from_items("bb")
MATRIX = fl.from_items(np.arange(6.0).reshape(3, 2))


def filled(*items: object) -> queue.Queue[Any]:
    q: queue.Queue[Any] = queue.Queue()
    for item in items:
        q.put(item)
    return q


def mean(flow: fl.Flow[Any, Any]) -> Any:
    """The mean of the rows, without all of them in memory."""
    total, n = 0.0, 0
    for row in flow:
        total, n = total + row, n + 1
    return total / n


@table(
    Case(
        "a list is a dataflow",
        "DataFromList([...], shuffle=False)",
        lambda: fl.from_items([1, 2]),
        [1, 2],
    ),
    Case(
        "a list is shuffled",
        "DataFromList([...])",
        lambda: sorted(fl.from_items([1, 2, 3]).shuffle(seed=1)),
        [1, 2, 3],
    ),
    Case(
        "a list has a limit",
        "CustomDataFromList(lst, max_datapoints=2)",
        lambda: fl.from_items([1, 2, 3]).take(2),
        [1, 2],
    ),
    Case(
        "a list is changed before it is read",
        "CustomDataFromList(lst, rebalance_func=f)",
        lambda: fl.from_items([1, 2, 3][1:]),
        [2, 3],
    ),
    Case(
        "an iterable is a dataflow",
        "DataFromIterable(iterable)",
        lambda: fl.from_iterable(range(2)),
        [0, 1],
    ),
    Case(
        "an iterable has a limit",
        "CustomDataFromIterable(iterable, max_datapoints=2)",
        lambda: fl.from_iterable(range(9)).take(2),
        [0, 1],
    ),
    Case(
        "a generator is a dataflow",
        "DataFromGenerator(f)",
        lambda: fl.from_iterable(lambda: (i for i in range(2))).repeat(2),
        [0, 1, 0, 1],
    ),
    Case(
        "a queue is a dataflow",
        "DataFromQueue(queue)",
        lambda: fl.from_queue(filled(1, 2, None)),
        [1, 2],
    ),
    Case(
        "fake data have shapes and dtypes",
        "FakeData([[2, 3], [1]], dtype=['float32', 'int64'])",
        lambda: str(fl.fake([(2, 3), (1,)], dtype=["float32", "int64"]).spec),
        "(float32[2, 3], int64[1])",
    ),
    Case("fake data have a size", "FakeData(shapes, size=7)", lambda: len(fl.fake([(1,)], 7)), 7),
    Case(
        "fake data have a domain",
        "FakeData([[5]], domain=(2, 3))",
        lambda: all(x.min() >= 2 and x.max() < 3 for (x,) in fl.fake([(5,)], 4, domain=(2, 3))),
        True,
    ),
    Case(
        "fake data are the same array",
        "FakeData(shapes, random=False)",
        lambda: (lambda x: np.array_equal(x[0][0], x[1][0]))(
            list(fl.fake([(5,)], 2, random=False))
        ),
        True,
    ),
    Case(
        "map changes datapoints",
        "MapData(df, f)",
        lambda: PAIRS.map(lambda dp: (dp[0], dp[1] * 2)),
        [("a", 2), ("b", 4), ("c", 6)],
    ),
    Case(
        "map adds a key",
        "MapData(df, add)",
        lambda: ROWS.map(lambda dp: {**dp, "z": 1})[0],
        {"x": 0, "y": "0", "z": 1},
    ),
    Case(
        "map leaves out what is None",
        "MapData(df, f) with None",
        lambda: PAIRS.filter_map(lambda dp: dp if dp[1] > 1 else None),
        [("b", 2), ("c", 3)],
    ),
    Case(
        "a component is mapped",
        "MapDataComponent(df, f, index=1)",
        lambda: PAIRS.map_component(lambda i: -i, 1),
        [("a", -1), ("b", -2), ("c", -3)],
    ),
    Case(
        "a component of a dict is mapped",
        "MapDataComponent(df, f, index='x')",
        lambda: ROWS.map_component(lambda i: -i, "x")[2]["x"],
        -2,
    ),
    Case(
        "a component that is None leaves the datapoint out",
        "MapDataComponent(df, f) with None",
        lambda: PAIRS.filter(lambda dp: dp[1] > 1).map_component(lambda i: -i, 1),
        [("b", -2), ("c", -3)],
    ),
    Case(
        "components are selected",
        "SelectComponent(df, [1, 0])",
        lambda: PAIRS.select(fl.c1, fl.c0),
        [(1, "a"), (2, "b"), (3, "c")],
    ),
    Case(
        "lists are flattened",
        "FlattenData(df)",
        lambda: fl.from_items([[1, 2], [3]]).flat_map(list),
        [1, 2, 3],
    ),
    Case(
        "batches have no rest",
        "BatchData(df, 2)",
        lambda: PAIRS.batch(2, drop_remainder=True),
        [(["a", "b"], [1, 2])],
    ),
    Case(
        "batches have a rest",
        "BatchData(df, 2, remainder=True)",
        lambda: PAIRS.batch(2),
        [(["a", "b"], [1, 2]), (["c"], [3])],
    ),
    Case(
        "batches have lists",
        "BatchData(df, 2, use_list=True)",
        lambda: PAIRS.batch(3, collate=fl.lists),
        [(["a", "b", "c"], [1, 2, 3])],
    ),
    Case(
        "batches of dicts are dicts",
        "BatchData(df, 3)",
        lambda: ROWS.batch(3)[0],
        {"x": [0, 1, 2], "y": ["0", "1", "2"]},
    ),
    Case(
        "a batch is larger than the dataflow",
        "BatchData(df, 20)",
        lambda: len(TEN.batch(20, drop_remainder=True)),
        0,
    ),
    Case(
        "the number of batches",
        "len(BatchData(df, 3))",
        lambda: (len(TEN.batch(3, drop_remainder=True)), len(TEN.batch(3))),
        (3, 4),
    ),
    Case(
        "batches have one shape",
        "BatchDataByShape(df, 2, idx=0)",
        lambda: (
            fl.from_items([(np.ones(n), n) for n in (1, 2, 1, 2)])
            .batch_by_shape(2, fl.c0)
            .map(fl.c1)
        ),
        [[1, 1], [2, 2]],
    ),
    Case(
        "a size is fixed and the next pass goes on",
        "FixedSizeData(df, 4)",
        lambda: [list(run) for run in TEN.fixed_size(4).epochs(3)],
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]],
    ),
    Case(
        "a size is fixed and the next pass begins again",
        "FixedSizeData(df, 4, keep_state=False)",
        lambda: [list(run) for run in TEN.fixed_size(4, keep_state=False).epochs(2)],
        [[0, 1, 2, 3]] * 2,
    ),
    Case("passes are repeated", "RepeatedData(df, 2)", lambda: B.repeat(2), ["b", "b", "b", "b"]),
    Case(
        "passes never end",
        "RepeatedData(df, -1)",
        lambda: fl.from_range(2).repeat().take(5),
        [0, 1, 0, 1, 0],
    ),
    Case(
        "datapoints are repeated",
        "RepeatedDataPoint(df, 2)",
        lambda: fl.from_range(2).repeat_each(2),
        [0, 0, 1, 1],
    ),
    Case("dataflows follow one another", "ConcatData([a, b])", lambda: A.concat(B), list("aaaabb")),
    Case(
        "datapoints of tuples join",
        "JoinData([a, b])",
        lambda: fl.from_items([(1, 2)]).zip(fl.from_items([(3,)])),
        [(1, 2, 3)],
    ),
    Case(
        "datapoints of dicts join",
        "JoinData([a, b])",
        lambda: fl.from_items([{"a": 1}]).zip(fl.from_items([{"b": 2}])),
        [{"a": 1, "b": 2}],
    ),
    Case(
        "a join ends with the shortest",
        "JoinData([a, b]) of other lengths",
        lambda: A.take(2).zip(B),
        [("a", "b"), ("a", "b")],
    ),
    Case(
        "dataflows are chosen until one ends",
        "RandomChooseData([(a, 0.5), (b, 0.5)])",
        lambda: len(list(A.choose(B, weights=[0.5, 0.5], stop="first"))) < 6,
        True,
    ),
    Case("dataflows are mixed", "RandomMixData([a, b])", lambda: sorted(A.mix(B)), list("aaaabb")),
    Case(
        "a local shuffle has a buffer",
        "LocallyShuffleData(df, 3)",
        lambda: sorted(TEN.shuffle(buffer=3, seed=1)),
        list(range(10)),
    ),
    Case(
        "a local shuffle reuses datapoints",
        "LocallyShuffleData(df, 3, num_reuse=2)",
        lambda: sorted(fl.from_range(2).repeat_each(2).shuffle(buffer=3)),
        [0, 0, 1, 1],
    ),
    Case(
        "a pass is cached", "CacheData(df)", lambda: TEN.cache().repeat(2), [*range(10), *range(10)]
    ),
    Case(
        "a cached pass is a list",
        "CacheData(df).get_cache()",
        lambda: TEN.collect(),
        list(range(10)),
    ),
    Case(
        "a cached pass is shuffled",
        "CacheData(df, shuffle=True)",
        lambda: sorted(TEN.cache().shuffle(seed=1)),
        list(range(10)),
    ),
    Case(
        "threads map datapoints",
        "MultiThreadMapData(df, 2, f)",
        lambda: sorted(TEN.map(lambda i: -i).prefetch(threads=2, ordered=False)),
        sorted(-i for i in range(10)),
    ),
    Case(
        "a strict map has each datapoint once",
        "MultiThreadMapData(df, 2, f, strict=True)",
        lambda: TEN.map(lambda i: -i).prefetch(threads=2),
        [-i for i in range(10)],
    ),
    Case(
        "threads leave out what is None",
        "MultiThreadMapData(df, 2, f) with None",
        lambda: TEN.filter_map(lambda i: i if i > 7 else None).prefetch(threads=2),
        [8, 9],
    ),
    Case(
        "workers map and batch",
        "MultiProcessMapAndBatchData(df, 2, f, 5)",
        lambda: TEN.map(lambda i: -i).batch(5).prefetch(threads=2)[1],
        [-5, -6, -7, -8, -9],
    ),
    Case(
        "an error of a worker is raised here",
        "MultiProcessMapData(df, 2, failing)",
        lambda: TEN.map(lambda i: 1 // (i - 4)).prefetch(threads=2),
        Refusal(fl.ElementError, "ZeroDivisionError"),
    ),
    Case(
        "the speed is measured",
        "TestDataSpeed(df, size=5).start()",
        lambda: TEN.measure(size=5).elements,
        5,
    ),
    Case(
        "the mean along an axis", "MeanFromDataFlow(df, axis=0)", lambda: mean(MATRIX), [2.0, 3.0]
    ),
    Case("the mean of all", "MeanFromDataFlow(df)", lambda: mean(MATRIX.map(np.mean)), 2.5),
    Case(
        "the standard deviation of all",
        "StdFromDataFlow(df)",
        lambda: round(float(mean(MATRIX.map(lambda x: ((x - 2.5) ** 2).mean())) ** 0.5), 3),
        1.708,
    ),
    Case(
        "a function of dataflows",
        "class Mine(ProxyDataFlow)",
        lambda: TEN.pipe(lambda df: df.filter(lambda i: i > 8)),
        [9],
    ),
)
def test_dataflows_have_the_outcome_of_tensorpack(case: Case) -> None:
    check(case)


def test_a_dataflow_resumes_though_tensorpack_does_not() -> None:
    """tensorpack: none; a fresh pass."""
    check_resumes(TEN.shuffle(buffer=3, seed=1).batch(2), (0, 1, 3))


def text(folder: Path, content: str) -> Path:
    (folder / "t.txt").write_text(content)
    return folder / "t.txt"


SERIAL = fl.from_items([(np.arange(2.0), 1), (np.ones(2), 2)])
READ = [([0.0, 1.0], 1), ([1.0, 1.0], 2)]


@table(
    Case(
        "LMDB",
        "LMDBSerializer.save and load",
        lambda d: (
            SERIAL.write_lmdb(d / "a.lmdb"),
            list(map(tuple, fl.from_lmdb(d / "a.lmdb", tuple[Any, int]))),
        )[1],
        READ,
    ),
    Case(
        "TFRecord",
        "TFRecordSerializer.save and load",
        lambda d: (
            SERIAL.write_tfrecord(d / "a.tfrecord"),
            fl.from_tfrecord(d / "a.tfrecord", tuple[Any, int]).collect(),
        )[1],
        READ,
    ),
    Case(
        "NumPy",
        "NumpySerializer.save and load",
        lambda d: (SERIAL.write_npz(d / "a.npz"), len(fl.from_npz(d / "a.npz")))[1],
        2,
    ),
    Case(
        "HDF5",
        "HDF5Serializer.save and load",
        lambda d: (
            SERIAL.write_hdf5(d / "a.h5", ["x", "y"]),
            fl.from_hdf5(d / "a.h5", ["x", "y"]).collect(),
        )[1],
        READ,
    ),
    Case(
        "JSON lines are read",
        "SerializerJsonlines.load(p)",
        lambda d: fl.from_text(text(d, '{"a": 1}\n')).map(json.loads),
        [{"a": 1}],
    ),
    Case(
        "JSON lines are written",
        "SerializerJsonlines.save(df, p)",
        lambda d: (
            ROWS.take(1).map(json.dumps).write_text(d / "w.jsonl"),
            (d / "w.jsonl").read_text(),
        )[1],
        '{"x": 0, "y": "0"}\n',
    ),
    Case(
        "lines of tabs are read",
        "SerializerTabsepFiles.load(p, max_datapoints=1)",
        lambda d: fl.from_text(text(d, "a\tb\nc\td\n")).take(1),
        ["a\tb"],
    ),
    Case(
        "files of a type are listed",
        "SerializerFiles.load(p, '.txt')",
        lambda d: fl.from_files(f"{text(d, 'x').parent}/**/*.txt").map(lambda p: Path(p).name),
        ["t.txt"],
    ),
    Case(
        "annotations are grouped by image",
        "SerializerCoco.load(p)",
        lambda d: fl.from_items(
            [{"image": 1, "id": 7}, {"image": 2, "id": 8}, {"image": 1, "id": 9}]
        ).batch_by_key(
            10**6, lambda a: a["image"], collate=lambda rows: [row["id"] for row in rows]
        ),
        [[7, 9], [8]],
    ),
)
def test_files_have_the_outcome_of_tensorpack(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

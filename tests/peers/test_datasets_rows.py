"""Rows, states and files in the tests of Hugging Face datasets, as flows."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, check_resumes, table

TEN = fl.from_range(10)
A, B, C = fl.from_items([0, 1, 2]), fl.from_items([10, 11, 12, 13]), fl.from_items(range(20, 25))
ROWS: fl.Flow[dict[str, Any], fl.Exact] = fl.from_items(
    [{"id": i, "text": "x" * i} for i in range(4)]
)


def doubled(rows: dict[str, Any]) -> dict[str, Any]:
    return {**rows, "id": rows["id"] * 2}


def padded(rows: dict[str, Any], by: int) -> dict[str, Any]:
    return {**rows, "id": rows["id"] + by}


async def awaited(i: int) -> int:
    await asyncio.sleep(0)
    return -i


def nobody(row: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("crash")


@table(
    Case(
        "rows of a generator",
        "IterableDataset.from_generator(f)",
        lambda: fl.from_iterable(lambda: ({"x": i} for i in range(2))),
        [{"x": 0}, {"x": 1}],
    ),
    Case(
        "rows of a generator with arguments",
        "from_generator(f, gen_kwargs={'n': 2})",
        lambda: fl.from_iterable(lambda: range(2)),
        [0, 1],
    ),
    Case(
        "rows of a generator of shards",
        "from_generator(f, gen_kwargs={'files': [...]})",
        lambda: fl.from_items(["ab", "c"]).flat_map(list),
        ["a", "b", "c"],
    ),
    Case(
        "rows of a dict of columns",
        "Dataset.from_dict({...})",
        lambda: fl.from_items({"x": np.arange(2), "y": np.array([5, 6])}),
        [{"x": 0, "y": 5}, {"x": 1, "y": 6}],
    ),
    Case("rows of a list", "Dataset.from_list([...])", lambda: ROWS[1], {"id": 1, "text": "x"}),
    Case("a row has a number", "ds[-1]", lambda: ROWS[-1]["id"], 3),
    Case("a number beyond the end is refused", "ds[4]", lambda: ROWS[4], Refusal(IndexError, "4")),
    Case(
        "rows have numbers", "ds[[0, 2]]", lambda: ROWS[[0, 2]].map(lambda row: row["id"]), [0, 2]
    ),
    Case("rows have a slice", "ds[1:3]", lambda: ROWS[1:3].map(lambda row: row["id"]), [1, 2]),
    Case("a column is a flow", 'ds["id"]', lambda: ROWS.map(lambda row: row["id"]), [0, 1, 2, 3]),
    Case(
        "map changes rows",
        "ds.map(f)",
        lambda: ROWS.map(doubled).map(lambda row: row["id"]),
        [0, 2, 4, 6],
    ),
    Case(
        "map has arguments",
        "ds.map(f, fn_kwargs={'by': 1})",
        lambda: ROWS.map(lambda row: padded(row, by=1)).map(lambda row: row["id"]),
        [1, 2, 3, 4],
    ),
    Case(
        "map has indices",
        "ds.map(f, with_indices=True)",
        lambda: fl.from_items("ab").enumerate().starmap(lambda i, x: x * (i + 1)),
        ["a", "bb"],
    ),
    Case(
        "map has columns",
        "ds.map(f, input_columns='id')",
        lambda: ROWS.map_component(lambda i: -i, "id").map(lambda row: row["id"]),
        [0, -1, -2, -3],
    ),
    Case(
        "map has batches",
        "ds.map(f, batched=True, batch_size=2)",
        lambda: ROWS.batch(2).map(doubled).unbatch().map(lambda row: int(row["id"])),
        [0, 2, 4, 6],
    ),
    Case(
        "map drops the last batch",
        "ds.map(f, batched=True, batch_size=3, drop_last_batch=True)",
        lambda: ROWS.batch(3, drop_remainder=True).unbatch().map(lambda row: int(row["id"])),
        [0, 1, 2],
    ),
    Case(
        "map makes more rows of a batch",
        "ds.map(f, batched=True) of longer columns",
        lambda: fl.from_items(["a b", "c"]).batch(2).flat_map(lambda rows: " ".join(rows).split()),
        ["a", "b", "c"],
    ),
    Case(
        "map makes fewer rows of a batch",
        "ds.map(f, batched=True) of shorter columns",
        lambda: TEN.batch(5).map(lambda x: x[:1]).unbatch(),
        [0, 5],
    ),
    Case(
        "map of columns of different lengths is refused",
        "ds.map(f, batched=True) of unequal columns",
        lambda: fl.from_items([{"x": [1, 2], "y": [1]}]).unbatch(),
        Refusal(fl.ElementError, "unbatch"),
    ),
    Case(
        "map removes columns",
        "ds.map(f, remove_columns=['text'])",
        lambda: ROWS.map(lambda row: {"n": len(row["text"])})[3],
        {"n": 3},
    ),
    Case(
        "map uses several processes",
        "ds.map(f, num_proc=2)",
        lambda: TEN.map(lambda i: -i).prefetch(threads=2),
        [-i for i in range(10)],
    ),
    Case(
        "map raises the error of its function",
        "ds.map(crash)",
        lambda: ROWS.map(nobody),
        Refusal(fl.ElementError, "ValueError('crash')"),
    ),
    Case(
        "map returns None for a row",
        "ds.map(print)",
        lambda: fl.from_range(1).map(lambda i: None),
        [None],
    ),
    Case(
        "map has an async function",
        "ds.map(async_f)",
        lambda: fl.from_range(2).map(lambda i: asyncio.run(awaited(i))).prefetch(threads=2),
        [0, -1],
    ),
    Case("filter keeps rows", "ds.filter(f)", lambda: TEN.filter(lambda i: i > 7), [8, 9]),
    Case(
        "filter has indices",
        "ds.filter(f, with_indices=True)",
        lambda: fl.from_items("abc").enumerate().filter_map(lambda x: x[1] if x[0] != 1 else None),
        ["a", "c"],
    ),
    Case(
        "filter has columns",
        "ds.filter(f, input_columns='id')",
        lambda: ROWS.filter(lambda row: row["id"] > 2).map(lambda row: row["text"]),
        ["xxx"],
    ),
    Case(
        "filter has batches",
        "ds.filter(f, batched=True)",
        lambda: TEN.batch(5).map(lambda x: x[x % 4 == 0]).unbatch(),
        [0, 4, 8],
    ),
    Case(
        "filter keeps none",
        "ds.filter(lambda x: False)",
        lambda: ROWS.filter(lambda row: False),
        [],
    ),
    Case("skip leaves rows out", "ds.skip(8)", lambda: TEN.skip(8), [8, 9]),
    Case("take has the first rows", "ds.take(2)", lambda: TEN.take(2), [0, 1]),
    Case("select has rows", "ds.select([3, 0])", lambda: TEN.select_rows([3, 0]), [3, 0]),
    Case(
        "select of a range has a slice",
        "ds.select(range(2, 4))",
        lambda: TEN.select_rows(range(2, 4)),
        [2, 3],
    ),
    Case(
        "a selection is mapped",
        "ds.select([3, 0]).map(f)",
        lambda: TEN.select_rows([3, 0]).map(lambda i: -i),
        [-3, 0],
    ),
    Case(
        "shard has every n-th row",
        "ds.shard(3, 1, contiguous=False)",
        lambda: TEN.shard(3, 1),
        [1, 4, 7],
    ),
    Case("a contiguous shard has a part", "ds.shard(3, 1)", lambda: TEN[4:7], [4, 5, 6]),
    Case("repeat has passes", "ds.repeat(2)", lambda: fl.from_range(2).repeat(2), [0, 1, 0, 1]),
    Case(
        "repeat never ends", "ds.repeat(None)", lambda: fl.from_range(2).repeat().take(3), [0, 1, 0]
    ),
    Case(
        "a row is added",
        "ds.add_item(row)",
        lambda: fl.from_range(2).concat(fl.from_items([9])),
        [0, 1, 9],
    ),
    Case(
        "rows are sorted",
        "ds.sort('id', reverse=True)",
        lambda: fl.from_items(sorted(TEN, reverse=True)).take(2),
        [9, 8],
    ),
    Case(
        "values are counted once",
        "ds.unique('x')",
        lambda: sorted(set(fl.from_items([2, 1, 2]))),
        [1, 2],
    ),
    Case(
        "rows are batched",
        "ds.batch(2)",
        lambda: ROWS.batch(2)[0],
        {"id": [0, 1], "text": ["", "x"]},
    ),
    Case(
        "rows are iterated in batches",
        "ds.iter(batch_size=4, drop_last_batch=True)",
        lambda: TEN.batch(4, drop_remainder=True),
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    Case(
        "neighbours of one value are batched",
        "ds.batch(by_column='x')",
        lambda: fl.from_iterable(lambda: itertools.groupby(fl.from_items("aab"))).map(
            lambda group: list(group[1])
        ),
        [["a", "a"], ["b"]],
    ),
    Case(
        "a formatted dataset has arrays",
        "ds.with_format('numpy')",
        lambda: ROWS.batch(4).map(lambda rows: type(rows["id"]).__name__),
        ["ndarray"],
    ),
    Case(
        "a transform is applied when a row is read",
        "ds.with_transform(f)",
        lambda: ROWS.map(doubled)[3]["id"],
        6,
    ),
    Case(
        "rows are a list", "ds.to_list()", lambda: ROWS.take(1).collect(), [{"id": 0, "text": ""}]
    ),
    Case(
        "rows are a dict of columns",
        "ds.to_dict()",
        lambda: ROWS.batch(4)[0],
        {"id": [0, 1, 2, 3], "text": ["", "x", "xx", "xxx"]},
    ),
)
def test_rows_have_the_outcome_of_datasets(case: Case) -> None:
    check(case)


@table(
    Case("map", "ds.map(f)", lambda: TEN.map(lambda i: -i), None),
    Case("filter", "ds.filter(f)", lambda: TEN.filter(lambda i: i % 2 == 0), None),
    Case(
        "batched map",
        "ds.map(f, batched=True)",
        lambda: TEN.batch(4).map(lambda x: -x).unbatch(),
        None,
    ),
    Case(
        "buffered shuffle", "ds.shuffle(buffer_size=3)", lambda: TEN.shuffle(buffer=3, seed=1), None
    ),
    Case("skip and take", "ds.skip(1).take(5)", lambda: TEN.skip(1).take(5), None),
    Case("repeat", "ds.repeat(2)", lambda: TEN.repeat(2), None),
    Case("concatenate", "concatenate_datasets([a, b])", lambda: A.concat(B), None),
    Case("join", "concatenate_datasets([a, b], axis=1)", lambda: A.zip(A), None),
    Case("interleave", "interleave_datasets([a, b])", lambda: A.interleave(B, C, stop="all"), None),
    Case(
        "interleave with probabilities",
        "interleave_datasets([a, b], probabilities)",
        lambda: A.choose(B, weights=[0.7, 0.3], stop="all"),
        None,
    ),
    Case("batch", "ds.batch(3)", lambda: TEN.batch(3), None),
    Case(
        "shards",
        "from_generator(f, gen_kwargs={'files': [...]})",
        lambda: fl.from_items(["ab", "cd"]).flat_map(list),
        None,
    ),
)
def test_a_dataset_resumes_as_in_datasets(case: Case) -> None:
    flow = case.ours()
    assert isinstance(flow, fl.Flow)
    check_resumes(flow, (0, 1, 3))


def text(folder: Path, content: str, name: str) -> Path:
    (folder / name).write_text(content)
    return folder / name


@table(
    Case(
        "rows of a CSV file",
        "Dataset.from_csv(p)",
        lambda d: fl.from_csv(text(d, "a,b\n1,x\n", "t.csv")),
        [{"a": "1", "b": "x"}],
    ),
    Case(
        "rows of a JSON lines file",
        "Dataset.from_json(p)",
        lambda d: fl.from_text(text(d, '{"a": 1}\n', "t.jsonl")).map(json.loads),
        [{"a": 1}],
    ),
    Case(
        "rows of a text file",
        "Dataset.from_text(p)",
        lambda d: fl.from_text(text(d, "x\ny\n", "t.txt")),
        ["x", "y"],
    ),
    Case(
        "rows of a Parquet file",
        "Dataset.from_parquet(p, columns=['id'])",
        lambda d: (
            ROWS.write_parquet(d / "p.parquet"),
            fl.from_parquet(d / "p.parquet", columns=["id"])[3],
        )[1],
        {"id": 3},
    ),
    Case(
        "rows are written as CSV",
        "ds.to_csv(p)",
        lambda d: (fl.from_items([{"a": 1}]).write_csv(d / "w.csv"), (d / "w.csv").read_text())[1],
        "a\n1\n",
    ),
    Case(
        "rows are written as JSON lines",
        "ds.to_json(p)",
        lambda d: (
            fl.from_items([{"a": 1}]).map(json.dumps).write_text(d / "w.jsonl"),
            (d / "w.jsonl").read_text(),
        )[1],
        '{"a": 1}\n',
    ),
    Case(
        "a dataset is saved and loaded",
        "ds.save_to_disk(p), load_from_disk(p)",
        lambda d: (ROWS.write_lmdb(d / "r.lmdb"), fl.from_lmdb(d / "r.lmdb")[3])[1],
        {"id": 3, "text": "xxx"},
    ),
    Case(
        "a mapped dataset is cached",
        "ds.map(f, load_from_cache_file=True)",
        lambda d: [list(TEN.map(lambda i: -i).cache(d / "c.lmdb"))[-1] for _ in range(2)],
        [-9, -9],
    ),
)
def test_files_have_the_outcome_of_datasets(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

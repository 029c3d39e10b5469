"""Columns and mixtures in the tests of Hugging Face datasets, as flows."""

from __future__ import annotations

from typing import Any

import numpy as np

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

TEN = fl.from_range(10)
A, B, C = fl.from_items([0, 1, 2]), fl.from_items([10, 11, 12, 13]), fl.from_items(range(20, 25))
ROWS: fl.Flow[dict[str, Any], fl.Exact] = fl.from_items(
    [{"id": i, "text": "x" * i} for i in range(4)]
)
LABELS = [0] * 8 + [1] * 2


@table(
    Case(
        "a column is added",
        "ds.add_column('y', values)",
        lambda: ROWS.zip(fl.from_items([{"y": i} for i in range(4)]))[1],
        {"id": 1, "text": "x", "y": 1},
    ),
    Case(
        "a column is renamed",
        "ds.rename_column('id', 'i')",
        lambda: ROWS.map(lambda row: {"i": row["id"], "text": row["text"]})[1],
        {"i": 1, "text": "x"},
    ),
    Case(
        "columns are removed", "ds.remove_columns('text')", lambda: ROWS.select("id")[1], {"id": 1}
    ),
    Case(
        "columns are selected",
        "ds.select_columns(['text', 'id'])",
        lambda: list(ROWS.select("text", "id")[1]),
        ["text", "id"],
    ),
    Case(
        "a column that is missing is refused",
        "ds.select_columns(['z'])",
        lambda: ROWS.select("z"),
        Refusal(fl.FlowError, "z"),
    ),
    Case(
        "a column is cast",
        "ds.cast_column('id', Value('float32'))",
        lambda: (
            ROWS.map_component(np.float32, "id").batch(2).map(lambda rows: str(rows["id"].dtype))
        ),
        ["float32", "float32"],
    ),
    Case(
        "labels have numbers",
        "ds.class_encode_column('text')",
        lambda: fl.from_items(["b", "a"]).map(["a", "b"].index),
        [1, 0],
    ),
    Case(
        "nested columns are flattened",
        "ds.flatten()",
        lambda: fl.from_items([{"a": {"b": 1}}]).map(
            lambda row: {f"a.{k}": v for k, v in row["a"].items()}
        ),
        [{"a.b": 1}],
    ),
    Case(
        "columns have types",
        "ds.features",
        lambda: str(fl.from_items({"x": np.zeros((3, 2), np.float32)}).spec),
        "{x: float32[2]}",
    ),
    Case(
        "datasets follow one another",
        "concatenate_datasets([a, b])",
        lambda: fl.concat([A, B]),
        [0, 1, 2, 10, 11, 12, 13],
    ),
    Case(
        "datasets with other columns follow one another",
        "concatenate_datasets of other columns",
        lambda: (
            fl.from_items([{"a": 1}])
            .map(lambda row: {"a": row["a"], "b": None})
            .concat(fl.from_items([{"b": 2}]).map(lambda row: {"a": None, "b": row["b"]}))
        ),
        [{"a": 1, "b": None}, {"a": None, "b": 2}],
    ),
    Case(
        "columns of two datasets join",
        "concatenate_datasets([a, b], axis=1)",
        lambda: fl.from_items([{"a": 1}]).zip(fl.from_items([{"b": 2}])),
        [{"a": 1, "b": 2}],
    ),
    Case(
        "datasets of other lengths do not join",
        "concatenate_datasets([a, b], axis=1) of lengths 3 and 4",
        lambda: A.zip(B),
        Refusal(fl.InvalidFlow, "zip"),
    ),
    Case(
        "datasets with a column in common do not join",
        "concatenate_datasets([a, a], axis=1)",
        lambda: ROWS.zip(ROWS),
        Refusal(fl.FlowError, "id"),
    ),
    Case(
        "datasets take turns until one has ended",
        "interleave_datasets([a, b, c])",
        lambda: A.interleave(B, C, stop="first"),
        [0, 10, 20, 1, 11, 21, 2, 12, 22],
    ),
    Case(
        "datasets take turns until all were seen",
        "interleave_datasets(..., stopping_strategy='all_exhausted')",
        lambda: A.interleave(B, C, stop="all"),
        [0, 10, 20, 1, 11, 21, 2, 12, 22, 0, 13, 23, 1, 10, 24],
    ),
    Case(
        "datasets take turns and no row is repeated",
        "interleave_datasets(..., 'all_exhausted_without_replacement')",
        lambda: A.interleave(B, C),
        [0, 10, 20, 1, 11, 21, 2, 12, 22, 13, 23, 24],
    ),
    Case(
        "datasets are drawn with probabilities",
        "interleave_datasets([a, b], probabilities=[0.7, 0.3], seed=42)",
        lambda: (
            60
            < list(
                A.repeat()
                .choose(B.repeat(), weights=[0.7, 0.3], seed=42)
                .take(100)
                .map(lambda i: i < 10)
            ).count(True)
            < 80
        ),
        True,
    ),
    Case(
        "draws go on until all were seen",
        "interleave_datasets(..., probabilities, 'all_exhausted')",
        lambda: set(A.choose(B, weights=[0.7, 0.3], stop="all")) == {*A, *B},
        True,
    ),
    Case(
        "draws are the same in each iteration",
        "list(ds) == list(ds)",
        lambda: list(A.choose(B, seed=1)) == list(A.choose(B, seed=1)),
        True,
    ),
    Case(
        "a buffer is shuffled",
        "ds.shuffle(seed=1, buffer_size=3)",
        lambda: sorted(TEN.shuffle(buffer=3, seed=1)),
        list(range(10)),
    ),
    Case(
        "a dataset is shuffled",
        "ds.shuffle(seed=1)",
        lambda: sorted(TEN.shuffle(seed=1)),
        list(range(10)),
    ),
    Case(
        "shards are shuffled, then a buffer",
        "ds.shuffle(buffer_size=3) of shards",
        lambda: sorted(
            fl.from_items(["ab", "cd", "e"])
            .shuffle(seed=1)
            .flat_map(list)
            .shuffle(buffer=3, seed=1)
        ),
        list("abcde"),
    ),
    Case(
        "each epoch has its order",
        "ds.set_epoch(1)",
        lambda: (lambda flow: list(flow) != list(flow.epoch(1)))(TEN.shuffle(buffer=5, seed=1)),
        True,
    ),
    Case(
        "rows are taken of a shuffled dataset",
        "ds.shuffle(seed=1).take(3)",
        lambda: len(set(TEN.shuffle(seed=1).take(3))),
        3,
    ),
    Case(
        "rows are skipped of a shuffled dataset",
        "ds.shuffle(seed=1).skip(3)",
        lambda: sorted([*TEN.shuffle(seed=1).take(3), *TEN.shuffle(seed=1).skip(3)]),
        list(range(10)),
    ),
    Case(
        "nodes read disjoint rows",
        "split_dataset_by_node(ds, rank, world_size=3)",
        lambda: [list(TEN.shard(3, rank)) for rank in range(3)],
        [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]],
    ),
    Case(
        "nodes read disjoint rows of a shuffled dataset",
        "split_dataset_by_node(ds.shuffle(seed=1), rank, 3)",
        lambda: sorted(x for rank in range(3) for x in TEN.shuffle(seed=1).shard(3, rank)),
        list(range(10)),
    ),
    Case(
        "nodes of nodes read disjoint rows",
        "split_dataset_by_node twice",
        lambda: TEN.shard(2, 1).shard(2, 0),
        [1, 5, 9],
    ),
    Case(
        "a part is held out",
        "ds.train_test_split(test_size=0.2, seed=1)",
        lambda: [len(part) for part in TEN.split(0.8, seed=1)],
        [8, 2],
    ),
    Case(
        "a part is held out in order",
        "ds.train_test_split(test_size=2, shuffle=False)",
        lambda: (list(TEN[:-2]), list(TEN[-2:])),
        (list(range(8)), [8, 9]),
    ),
    Case(
        "a held-out part has the proportions of the labels",
        "train_test_split(stratify_by_column='y')",
        lambda: sorted(
            LABELS[int(i)]
            for label in (0, 1)
            for i in fl.from_items([i for i, y in enumerate(LABELS) if y == label]).split(
                0.5, seed=1
            )[1]
        ),
        [0, 0, 0, 0, 1],
    ),
    Case(
        "a table of rows is repeated with another order",
        "ds.shuffle(seed=1).repeat(2)",
        lambda: sorted(fl.from_range(2).shuffle(seed=1).repeat(2)),
        [0, 0, 1, 1],
    ),
)
def test_columns_and_mixtures_have_the_outcome_of_datasets(case: Case) -> None:
    check(case)

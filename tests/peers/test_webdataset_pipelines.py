"""Pipelines in the tests of WebDataset, as flows."""

from __future__ import annotations

from typing import Any

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

TEN = fl.from_range(10)
SAMPLES: fl.Flow[dict[str, Any], fl.Exact] = fl.from_items(
    [{"__key__": f"{i}", "cls": i, "txt": "x" * i} for i in range(4)]
)
A, B = fl.from_items("aaaa"), fl.from_items("bb")


def even(i: int) -> int:
    if i % 2:
        raise ValueError(f"{i} is odd")
    return i


def picked(row: dict[str, Any], names: str) -> Any:
    """The first of several extensions that a sample has."""
    return next(row[name] for name in names.split(";") if name in row)


@table(
    Case(
        "a pipeline is stages",
        "DataPipeline(source, map(f))",
        lambda: fl.from_iterable(lambda: iter([1, 2])).map(lambda i: i + 1),
        [2, 3],
    ),
    Case(
        "a stage is a generator",
        "DataPipeline(source, stage)",
        lambda: fl.from_iterable(lambda: (i + 4 for i in TEN)).take(2),
        [4, 5],
    ),
    Case("map changes samples", ".map(f)", lambda: TEN.map(lambda i: i * i).take(3), [0, 1, 4]),
    Case(
        "map_dict changes components",
        ".map_dict(cls=f)",
        lambda: SAMPLES.map_component(lambda i: -i, "cls")[2]["cls"],
        -2,
    ),
    Case(
        "map_tuple changes components",
        ".map_tuple(f, g)",
        lambda: fl.from_items([(1, 2)]).starmap(lambda x, y: (x + 1, y * 2)),
        [(2, 4)],
    ),
    Case(
        "select keeps samples",
        ".select(f)",
        lambda: TEN.select_rows(range(10)).filter(lambda i: i % 2 == 0),
        [0, 2, 4, 6, 8],
    ),
    Case(
        "to_tuple has components",
        ".to_tuple('cls', 'txt')",
        lambda: SAMPLES.map(lambda row: (row["cls"], row["txt"])).take(2),
        [(0, ""), (1, "x")],
    ),
    Case(
        "to_tuple has one of several extensions",
        ".to_tuple('png;jpg')",
        lambda: fl.from_items([{"jpg": 1}, {"png": 2}]).map(lambda row: picked(row, "png;jpg")),
        [1, 2],
    ),
    Case(
        "to_tuple of a missing extension is an error",
        ".to_tuple('cls')",
        lambda: fl.from_items([{"a": 1}]).select("cls"),
        Refusal(fl.FlowError, "cls"),
    ),
    Case(
        "rename changes names",
        ".rename(label='cls')",
        lambda: SAMPLES.map(lambda row: {"label": row["cls"]})[3],
        {"label": 3},
    ),
    Case(
        "rename_keys keeps the rest",
        ".rename_keys(label='cls', keep=True)",
        lambda: SAMPLES.map(lambda row: {**row, "label": row["cls"]})[0],
        {"__key__": "0", "cls": 0, "txt": "", "label": 0},
    ),
    Case(
        "shuffle has a buffer",
        ".shuffle(5)",
        lambda: sorted(TEN.shuffle(buffer=5, seed=1)),
        list(range(10)),
    ),
    Case(
        "shuffle of nothing is nothing",
        ".shuffle(5) of nothing",
        lambda: fl.from_range(0).shuffle(buffer=5),
        [],
    ),
    Case(
        "shuffle of one is one",
        ".shuffle(5) of one",
        lambda: fl.from_range(1).shuffle(buffer=5),
        [0],
    ),
    Case(
        "a deterministic shuffle differs by epoch",
        "detshuffle(epoch=k)",
        lambda: (
            lambda flow: (
                list(flow.epoch(1)) == list(flow.epoch(1)),
                list(flow) != list(flow.epoch(1)),
            )
        )(TEN.shuffle(buffer=5, seed=1)),
        (True, True),
    ),
    Case(
        "batched stacks tuples",
        ".batched(3)",
        lambda: fl.from_items([(i, i) for i in range(4)]).batch(3),
        [([0, 1, 2], [0, 1, 2]), ([3], [3])],
    ),
    Case(
        "batched leaves the rest out",
        ".batched(3, partial=False)",
        lambda: fl.from_range(4).batch(3, drop_remainder=True),
        [[0, 1, 2]],
    ),
    Case(
        "batched has a function of its own",
        ".batched(2, collation_fn=list)",
        lambda: fl.from_range(3).batch(2, collate=list),
        [[0, 1], [2]],
    ),
    Case(
        "unbatched is the inverse",
        ".batched(3).unbatched()",
        lambda: fl.from_items([(i, i) for i in range(4)]).batch(3).unbatch(),
        [(0, 0), (1, 1), (2, 2), (3, 3)],
    ),
    Case(
        "unlisted joins lists",
        ".unlisted()",
        lambda: fl.from_items([[1, 2], [3]]).unbatch(),
        [1, 2, 3],
    ),
    Case("slice ends a pass", ".slice(3)", lambda: TEN.take(3), [0, 1, 2]),
    Case("slice has a step", ".slice(2, 9, 3)", lambda: TEN[2:9:3], [2, 5, 8]),
    Case("repeat has passes", ".repeat(2)", lambda: fl.from_range(2).repeat(2), [0, 1, 0, 1]),
    Case(
        "an epoch has so many samples",
        ".with_epoch(12)",
        lambda: TEN.fixed_size(12),
        [*range(10), 0, 1],
    ),
    Case(
        "the next epoch goes on",
        ".with_epoch(4), twice",
        lambda: [list(run) for run in TEN.fixed_size(4).epochs(3)],
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]],
    ),
    Case(
        "an endless stream has epochs",
        ".resampled().with_epoch(4)",
        lambda: len(list(TEN.shuffle(seed=1).repeat().fixed_size(4))),
        4,
    ),
    Case(
        "a length is said",
        ".with_length(12)",
        lambda: len(fl.from_iterable(lambda: range(5)).fixed_size(12)),
        12,
    ),
    Case(
        "samples are drawn",
        ".rsample(0.5)",
        lambda: (
            30
            < len(
                list(
                    fl.from_range(100)
                    .random_map(lambda i, rng: i if rng.random() < 0.5 else None, seed=1)
                    .filter_map(lambda i: i)
                )
            )
            < 70
        ),
        True,
    ),
    Case(
        "samples are drawn with repetition",
        "resampled(27)",
        lambda: len(list(TEN.sample(27, seed=1))),
        27,
    ),
    Case(
        "a failing sample is left out",
        ".map(f, handler=ignore_and_continue)",
        lambda: TEN.map(even).prefetch(threads=1, on_error="skip"),
        [0, 2, 4, 6, 8],
    ),
    Case(
        "a failing sample ends the pass",
        ".map(f, handler=ignore_and_stop)",
        lambda: TEN.map(lambda i: i if i < 3 else None).take_while(lambda i: i is not None),
        [0, 1, 2],
    ),
    Case(
        "a failing sample is an error",
        ".map(f)",
        lambda: TEN.map(even),
        Refusal(fl.ElementError, "1 is odd"),
    ),
    Case(
        "an empty pass is an error",
        ".compose(non_empty)",
        lambda: len(TEN.filter(lambda i: False).batch(1).zip(fl.from_range(1)).collect()),
        Refusal(fl.FlowError, "zip"),
    ),
    Case(
        "datasets take turns",
        "RoundRobin([a, b])",
        lambda: A.interleave(B, stop="first"),
        list("ababa"),
    ),
    Case(
        "datasets take turns to the end",
        "RoundRobin([a, b], longest=True)",
        lambda: A.interleave(B),
        list("ababaa"),
    ),
    Case(
        "datasets are mixed",
        "RandomMix([a, b], probs=[0.9, 0.1], longest=True)",
        lambda: sorted(A.choose(B, weights=[0.9, 0.1])),
        list("aaaabb"),
    ),
    Case(
        "a dataset for tests has one sample",
        "MockDataset((True, True), 193)",
        lambda: len(fl.from_items([(True, True)]).repeat(193)),
        193,
    ),
    Case(
        "a loader reads in workers",
        "WebLoader(ds, num_workers=2, batch_size=None)",
        lambda: TEN.batch(5).prefetch(threads=2),
        [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
    ),
    Case(
        "batches of workers are shuffled anew",
        "WebLoader(...).unbatched().shuffle(5).batched(2)",
        lambda: sorted(
            TEN.batch(5).prefetch(threads=1).unbatch().shuffle(buffer=5, seed=1).batch(2).unbatch()
        ),
        list(range(10)),
    ),
    Case(
        "samples of a queue",
        "repeatedly(source, nepochs=2)",
        lambda: fl.from_range(2).repeat(2),
        [0, 1, 0, 1],
    ),
    Case("a predicate ends the pass", ".until(f)", lambda: TEN.take_while(lambda i: i < 2), [0, 1]),
    Case(
        "samples are associated by key",
        ".associate(table)",
        lambda: SAMPLES.map(lambda row: {**row, "name": {"0": "zero"}.get(row["__key__"])})[0][
            "name"
        ],
        "zero",
    ),
)
def test_pipelines_have_the_outcome_of_webdataset(case: Case) -> None:
    check(case)

"""What the tests of Grain ask of the transformations of its datasets, as flows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

TEN = fl.from_range(10)
FIFTEEN = fl.from_range(15)
EVEN, ODD = fl.from_items(range(0, 10, 2)), fl.from_items(range(1, 10, 2))
TEXT: Any = "x"


class Squares:
    """A source with random access."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        return i * i


class Point(NamedTuple):
    x: int
    y: int


def summed(rows: list[int]) -> int:
    return sum(rows)


def drawn(i: int, rng: np.random.Generator) -> int:
    return i + int(rng.integers(100))


@table(
    Case("a range has a stop", "MapDataset.range(3)", lambda: fl.from_range(3), [0, 1, 2]),
    Case(
        "a range has a start and a step",
        "MapDataset.range(2, 9, 3)",
        lambda: fl.from_items(range(2, 9, 3)),
        [2, 5, 8],
    ),
    Case(
        "a source is a sequence", "MapDataset.source([1, 2])", lambda: fl.from_items([1, 2]), [1, 2]
    ),
    Case(
        "a source has len and getitem",
        "MapDataset.source(Squares())",
        lambda: fl.from_dataset(Squares()),
        [0, 1, 4, 9],
    ),
    Case("an empty source is a dataset", "MapDataset.source([])", lambda: fl.from_items([]), []),
    Case("a dataset has items by number", "ds[2]", lambda: TEN.map(lambda i: i + 1)[2], 3),
    Case("a dataset has items by numbers", "ds._getitems([7, 2])", lambda: TEN[[7, 2]], [7, 2]),
    Case(
        "items are read in reverse",
        "[ds[i] for i in reversed(range(n))]",
        lambda: fl.from_dataset(Squares())[::-1],
        [9, 4, 1, 0],
    ),
    Case(
        "an item beyond the length is one of the next epoch",
        "ds[12]",
        lambda: TEN.repeat().at(12),
        2,
    ),
    Case(
        "map applies a function",
        "ds.map(f)",
        lambda: FIFTEEN.map(lambda i: i + 1),
        list(range(1, 16)),
    ),
    Case("map keeps the length", "len(ds.map(f))", lambda: len(FIFTEEN.map(lambda i: i + 1)), 15),
    Case(
        "map has the index",
        "ds.map_with_index(f)",
        lambda: fl.from_items("ab").enumerate().starmap(lambda i, x: f"{x}{i}"),
        ["a0", "b1"],
    ),
    Case(
        "the index of a repeated dataset goes on",
        "ds.repeat(2).map_with_index(f)",
        lambda: fl.from_items("ab").repeat(2).enumerate(),
        [(0, "a"), (1, "b"), (2, "a"), (3, "b")],
    ),
    Case(
        "random map has a generator for each element",
        "ds.random_map(f, seed=1)",
        lambda: len({x - i for i, x in enumerate(TEN.random_map(drawn, seed=1))}) > 1,
        True,
    ),
    Case(
        "random map is deterministic",
        "ds.random_map(f, seed=1)",
        lambda: TEN.random_map(drawn, seed=1).collect() == TEN.random_map(drawn, seed=1).collect(),
        True,
    ),
    Case(
        "random map differs for another seed",
        "ds.random_map(f, seed=2)",
        lambda: TEN.random_map(drawn, seed=1).collect() != TEN.random_map(drawn, seed=2).collect(),
        True,
    ),
    Case(
        "random map differs in the next epoch",
        "ds.random_map(f, seed=1).repeat(2)",
        lambda: (lambda x: x[:10] != x[10:])(TEN.random_map(drawn, seed=1).repeat(2).collect()),
        True,
    ),
    Case(
        "two random maps draw differently",
        "ds.random_map(f).random_map(f)",
        lambda: (lambda x, y: x != y)(
            TEN.random_map(drawn, seed=1).collect(),
            TEN.random_map(lambda i, rng: i).random_map(drawn, seed=1).collect(),
        ),
        True,
    ),
    Case(
        "a chain of transforms is applied",
        "apply_transformations(ds, [f, g])",
        lambda: TEN.pipe(lambda ds: ds.map(lambda i: i + 1)).pipe(
            lambda ds: ds.filter(lambda i: i > 8)
        ),
        [9, 10],
    ),
    Case(
        "a function of datasets is piped",
        "ds.pipe(f, 2)",
        lambda: TEN.pipe(lambda ds, n: ds.take(n), 2),
        [0, 1],
    ),
    Case(
        "filter keeps elements",
        "ds.filter(f)",
        lambda: FIFTEEN.filter(lambda i: i % 2 == 1),
        [1, 3, 5, 7, 9, 11, 13],
    ),
    Case(
        "filter keeps none", "ds.filter(lambda x: False)", lambda: TEN.filter(lambda i: False), []
    ),
    Case(
        "filter keeps all",
        "ds.filter(lambda x: True)",
        lambda: TEN.filter(lambda i: True),
        list(range(10)),
    ),
    Case(
        "filters combine",
        "ds.filter(f).filter(g)",
        lambda: FIFTEEN.filter(lambda i: i > 3).filter(lambda i: i % 2 == 1),
        [5, 7, 9, 11, 13],
    ),
    Case(
        "a filter of slices of repeats",
        "ds.slice(...).filter(f).repeat(2)",
        lambda: FIFTEEN[:4].filter(lambda i: i % 2 == 1).repeat(2),
        [1, 3, 1, 3],
    ),
    Case(
        "flat map has all parts",
        "FlatMapIterDataset(ds, f)",
        lambda: fl.from_range(4).flat_map(lambda i: [i] * i),
        [1, 2, 2, 3, 3, 3],
    ),
    Case(
        "flat map of an empty dataset",
        "FlatMapMapDataset(empty, f)",
        lambda: fl.from_range(0).flat_map(lambda i: [i]),
        [],
    ),
    Case(
        "flat map may be bounded",
        "FlatMapTransform.max_fan_out = 2",
        lambda: fl.from_range(3).flat_map(lambda i: [i] * i if i < 3 else []),
        [1, 2, 2],
    ),
    Case("slice has a stop", "ds.slice(slice(3))", lambda: TEN[:3], [0, 1, 2]),
    Case(
        "slice has a start and a step", "ds.slice(slice(2, None, 3))", lambda: TEN[2::3], [2, 5, 8]
    ),
    Case("slices compose", "ds.slice(...).slice(...)", lambda: TEN[2:9][1::2], [3, 5, 7]),
    Case(
        "a slice of an empty dataset is empty",
        "range(0).slice(slice(0, 10))",
        lambda: fl.from_range(0)[0:10],
        [],
    ),
    Case(
        "a slice is for a process",
        "ds[shard_index::shard_count]",
        lambda: [list(TEN[i::3]) for i in range(3)],
        [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]],
    ),
    Case(
        "a list of numbers reindexes",
        "ds.slice([1, 1, 0])",
        lambda: TEN.select_rows([1, 1, 0]),
        [1, 1, 0],
    ),
    Case("reindexing by no numbers is empty", "ds.slice([])", lambda: TEN.select_rows([]), []),
    Case(
        "a reindexed dataset repeats",
        "ds.slice([1, 0]).repeat(2)",
        lambda: TEN.select_rows([1, 0]).repeat(2),
        [1, 0, 1, 0],
    ),
    Case(
        "a reindexed dataset is sliced",
        "ds.slice([3, 1, 4])[1:]",
        lambda: TEN.select_rows([3, 1, 4])[1:],
        [1, 4],
    ),
    Case(
        "a number beyond the end is refused",
        "ds.slice([10])",
        lambda: TEN.select_rows([10]),
        Refusal(fl.InvalidFlow, "select_rows"),
    ),
    Case("limit has the first elements", "LimitIterDataset(ds, 3)", lambda: TEN.take(3), [0, 1, 2]),
    Case(
        "limit after batch has batches",
        "LimitIterDataset(ds.batch(2), 2)",
        lambda: TEN.batch(2).take(2),
        [[0, 1], [2, 3]],
    ),
    Case(
        "limit goes over epochs",
        "LimitIterDataset(ds.repeat(), 12)",
        lambda: TEN.repeat().take(12),
        [*range(10), 0, 1],
    ),
    Case(
        "a negative limit is refused",
        "LimitIterDataset(ds, -1)",
        lambda: TEN.take(-1),
        Refusal(fl.InvalidFlow, "take"),
    ),
    Case("repeat multiplies the length", "len(ds.repeat(3))", lambda: len(TEN.repeat(3)), 30),
    Case(
        "repeat never ends",
        "ds.repeat()",
        lambda: fl.from_range(2).repeat().take(5),
        [0, 1, 0, 1, 0],
    ),
    Case(
        "repeat of an endless dataset is refused or endless",
        "ds.repeat().repeat()",
        lambda: fl.from_range(2).repeat().repeat().take(3),
        [0, 1, 0],
    ),
    Case(
        "a negative number of epochs is refused",
        "ds.repeat(-1)",
        lambda: TEN.repeat(-1),
        Refusal(fl.InvalidFlow, "repeat"),
    ),
    Case(
        "repeat of nothing is not endless",
        "range(0).repeat()",
        lambda: fl.from_range(0).repeat(),
        Refusal(fl.InvalidFlow, "repeat: its source has no elements"),
    ),
    Case(
        "repeat after parallel work",
        "ds.mp_prefetch(...).repeat(2)",
        lambda: fl.from_range(2).prefetch(threads=1).repeat(2),
        [0, 1, 0, 1],
    ),
)
def test_reading_and_mapping_have_the_outcome_of_grain(case: Case) -> None:
    check(case)


@table(
    Case(
        "shuffle keeps the length", "len(ds.shuffle(seed=1))", lambda: len(TEN.shuffle(seed=1)), 10
    ),
    Case(
        "shuffle keeps the elements",
        "ds.shuffle(seed=1)",
        lambda: sorted(TEN.shuffle(seed=1)),
        list(range(10)),
    ),
    Case(
        "shuffle is deterministic",
        "ds.shuffle(seed=1)",
        lambda: list(TEN.shuffle(seed=1)) == list(TEN.shuffle(seed=1)),
        True,
    ),
    Case(
        "shuffle differs for another seed",
        "ds.shuffle(seed=2)",
        lambda: list(TEN.shuffle(seed=1)) != list(TEN.shuffle(seed=2)),
        True,
    ),
    Case(
        "shuffle differs in the next epoch",
        "ds.shuffle(seed=1).repeat(2)",
        lambda: (lambda x: x[:10] != x[10:])(list(TEN.shuffle(seed=1).repeat(2))),
        True,
    ),
    Case(
        "items of a shuffled dataset are read by number",
        "ds.shuffle(seed=1)[3]",
        lambda: TEN.shuffle(seed=1)[3] == list(TEN.shuffle(seed=1))[3],
        True,
    ),
    Case(
        "a seed must be a number",
        "ds.shuffle(seed='x')",
        lambda: TEN.shuffle(seed=TEXT),
        Refusal(fl.InvalidFlow, "seed"),
    ),
    Case(
        "a window is shuffled",
        "WindowShuffleIterDataset(ds, window_size=3, seed=1)",
        lambda: sorted(TEN.shuffle(buffer=3, seed=1)),
        list(range(10)),
    ),
    Case(
        "windows are shuffled one by one",
        "WindowShuffleMapDataset(ds, window_size=5, seed=1)",
        lambda: [
            sorted(w)
            for w in TEN.window(5, stride=5).random_map(
                lambda w, rng: [w[i] for i in rng.permutation(5)], seed=1
            )
        ],
        [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
    ),
    Case("batch stacks", "ds.batch(2)", lambda: fl.from_range(3).batch(2), [[0, 1], [2]]),
    Case(
        "batch drops the remainder",
        "ds.batch(2, drop_remainder=True)",
        lambda: fl.from_range(3).batch(2, drop_remainder=True),
        [[0, 1]],
    ),
    Case(
        "batch has a function of its own",
        "ds.batch(2, batch_fn=f)",
        lambda: fl.from_range(4).batch(2, collate=summed),
        [1, 5],
    ),
    Case(
        "batch of dicts of arrays",
        "ds.batch(2)",
        lambda: fl.from_items([{"x": np.ones(2)}, {"x": np.zeros(2)}]).batch(2),
        [{"x": [[1.0, 1.0], [0.0, 0.0]]}],
    ),
    Case(
        "batch of tuples",
        "ds.batch(2)",
        lambda: fl.from_items([(1, 2.0), (3, 4.0)]).batch(2),
        [([1, 3], [2.0, 4.0])],
    ),
    Case(
        "batch of named tuples",
        "ds.batch(2)",
        lambda: (
            fl.from_items([Point(1, 2), Point(3, 4)])
            .batch(2)
            .map(lambda points: type(points).__name__)
        ),
        ["Point"],
    ),
    Case(
        "batch of lists",
        "ds.batch(2)",
        lambda: fl.from_items([[1, 2], [3, 4]]).batch(2),
        [[[1, 2], [3, 4]]],
    ),
    Case(
        "batch of strings of several lengths",
        "ds.batch(2)",
        lambda: fl.from_items(["a", "longer"]).batch(2),
        [["a", "longer"]],
    ),
    Case(
        "mixed numbers do not stack",
        "ds.batch(2) of 1 and 2.5",
        lambda: fl.from_items([1, 2.5]).batch(2),
        Refusal(fl.ElementError, "batch(2)"),
    ),
    Case(
        "different shapes do not stack",
        "ds.batch(2)",
        lambda: fl.from_items([np.ones(2), np.ones(3)]).batch(2),
        Refusal(fl.ElementError, "batch(2)"),
    ),
    Case(
        "different keys do not stack",
        "ds.batch(2)",
        lambda: fl.from_items([{"a": 1}, {"b": 1}]).batch(2),
        Refusal(fl.ElementError, "batch(2)"),
    ),
    Case(
        "batch and pad has batches of one size",
        "ds.batch(2, batch_fn=batch_and_pad)",
        lambda: fl.from_range(3).batch(2, remainder="fill"),
        [([0, 1], [True, True]), ([2, 2], [True, False])],
    ),
    Case(
        "a batch of zero is refused",
        "ds.batch(0)",
        lambda: TEN.batch(0),
        Refusal(fl.InvalidFlow, "batch"),
    ),
    Case(
        "batches end with an epoch",
        "ds.batch(3).repeat(2)",
        lambda: fl.from_range(4).batch(3).repeat(2),
        [[0, 1, 2], [3], [0, 1, 2], [3]],
    ),
    Case(
        "batches go over epochs",
        "ds.repeat(2).batch(3)",
        lambda: fl.from_range(4).repeat(2).batch(3),
        [[0, 1, 2], [3, 0, 1], [2, 3]],
    ),
    Case("a batch is read by number", "ds.batch(3)[1]", lambda: TEN.batch(3)[1], [3, 4, 5]),
    Case(
        "a batch after a filter",
        "ds.filter(f).batch(2)",
        lambda: TEN.filter(lambda i: i % 2 == 0).batch(2),
        [[0, 2], [4, 6], [8]],
    ),
    Case(
        "rebatch changes the size",
        "RebatchIterDataset(ds, 3)",
        lambda: fl.from_range(6).batch(4).unbatch().batch(3),
        [[0, 1, 2], [3, 4, 5]],
    ),
    Case(
        "rebatch has dicts",
        "RebatchIterDataset(ds, 2)",
        lambda: fl.from_items([{"x": i} for i in range(3)]).batch(3).unbatch().batch(2),
        [{"x": [0, 1]}, {"x": [2]}],
    ),
    Case(
        "an element has a spec",
        "get_element_spec(ds)",
        lambda: str(fl.from_items(np.zeros((4, 3), np.float32)).batch(2).spec),
        "float32[2, 3]",
    ),
)
def test_orders_and_batches_have_the_outcome_of_grain(case: Case) -> None:
    check(case)

"""Sizes, combinations, orders and cardinalities of tf.data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs
import numpy as np
import pytest

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

TEN = fl.from_range(10)
RAGGED = fl.from_items([[1], [2, 3], [4, 5, 6], [7]])
A, B = fl.from_items("aaaa"), fl.from_items("bb")


def endless() -> Iterator[int]:
    return itertools.count(10, 2)


def unequal(_: object) -> fl.Flow[tuple[int, int], fl.Exact]:
    return fl.from_range(3).zip(fl.from_range(2))


@table(
    Case("take has the first elements", "take(3)", lambda: TEN.take(3), [0, 1, 2]),
    Case("take of none is empty", "take(0)", lambda: TEN.take(0), []),
    Case("take of more than there are has all", "take(25)", lambda: TEN.take(25), list(range(10))),
    Case("skip leaves the first elements out", "skip(8)", lambda: TEN.skip(8), [8, 9]),
    Case("skip of none has all", "skip(0)", lambda: fl.from_range(2).skip(0), [0, 1]),
    Case("skip of more than there are leaves none", "skip(25)", lambda: TEN.skip(25), []),
    Case("repeat has passes", "repeat(3)", lambda: fl.from_range(2).repeat(3), [0, 1, 0, 1, 0, 1]),
    Case(
        "repeat never ends",
        "repeat().take(5)",
        lambda: fl.from_range(2).repeat().take(5),
        [0, 1, 0, 1, 0],
    ),
    Case("repeat of no passes is empty", "repeat(0)", lambda: fl.from_range(2).repeat(0), []),
    Case(
        "repeat of an empty dataset is empty",
        "range(0).repeat(3)",
        lambda: fl.from_range(0).repeat(3),
        [],
    ),
    Case(
        "repeats multiply",
        "repeat(2).repeat(2)",
        lambda: fl.from_range(1).repeat(2).repeat(2),
        [0, 0, 0, 0],
    ),
    Case("a shard has every n-th element", "shard(4, 1)", lambda: TEN.shard(4, 1), [1, 5, 9]),
    Case("a shard of one is all", "shard(1, 0)", lambda: fl.from_range(3).shard(1, 0), [0, 1, 2]),
    Case("a shard may be empty", "range(1).shard(5, 2)", lambda: fl.from_range(1).shard(5, 2), []),
    Case(
        "a shard beyond the last is refused",
        "shard(2, 2)",
        lambda: TEN.shard(2, 2),
        Refusal(fl.InvalidFlow, "shard"),
    ),
    Case(
        "a negative shard is refused",
        "shard(2, -1)",
        lambda: TEN.shard(2, -1),
        Refusal(fl.InvalidFlow, "shard"),
    ),
    Case(
        "any element has a number",
        "ds.__getitem__, get_element_at_index",
        lambda: TEN.map(lambda i: i * i)[3],
        9,
    ),
    Case(
        "an element beyond the end is refused",
        "random_access.at(ds, 10)",
        lambda: TEN[10],
        Refusal(IndexError, "from_range"),
    ),
    Case(
        "zip pairs elements",
        "zip(a, b)",
        lambda: fl.from_range(2).zip(fl.from_items("ab")),
        [(0, "a"), (1, "b")],
    ),
    Case(
        "zip takes three",
        "zip(a, b, c)",
        lambda: fl.zip(fl.from_range(2), fl.from_items("ab"), fl.from_range(2)),
        [(0, "a", 0), (1, "b", 1)],
    ),
    Case(
        "zip makes dicts",
        'zip({"x": a, "y": b})',
        lambda: fl.zip({"x": fl.from_range(1), "y": fl.from_items([7])}),
        [{"x": 0, "y": 7}],
    ),
    Case(
        "zip nests",
        "zip(a, zip(b, c))",
        lambda: fl.from_range(1).zip(
            fl.zip(fl.from_items([5]), fl.from_items([6])).map(lambda pair: [*pair])
        ),
        [(0, [5, 6])],
    ),
    Case(
        "zip ends with the shortest",
        "zip(range(3), range(2))",
        lambda: fl.from_range(3).take(2).zip(fl.from_range(2)),
        [(0, 0), (1, 1)],
    ),
    Case(
        "zip does not end with the shortest by itself",
        "zip(range(3), range(2))",
        lambda: unequal(None),
        Refusal(fl.InvalidFlow, ".take(n)"),
    ),
    Case(
        "an endless dataset ends with the others",
        "zip(counter(), b)",
        lambda: fl.from_range(1).repeat().zip(fl.from_items("ab")),
        [(0, "a"), (0, "b")],
    ),
    Case("concatenate adds a dataset", "concatenate(b)", lambda: A.concat(B), list("aaaabb")),
    Case(
        "concatenate refuses another type",
        "concatenate of other dtypes",
        lambda: fl.from_items(np.zeros(2)).concat(fl.from_items(np.zeros(2, np.int32))),
        Refusal(fl.InvalidFlow, "concat"),
    ),
    Case(
        "concatenate takes other shapes",
        "concatenate of other shapes",
        lambda: fl.from_items(np.zeros((1, 2))).concat(fl.from_items(np.zeros((1, 3)))),
        [[0.0, 0.0], [0.0, 0.0, 0.0]],
    ),
    Case(
        "an endless dataset has no successor",
        "repeat().concatenate(b)",
        lambda: fl.from_range(1).repeat().concat(fl.from_range(2)).take(1),
        Refusal(fl.FlowError, "end"),
    ),
    Case(
        "datasets are chosen in a given order",
        "choose_from_datasets([a, b], choices)",
        lambda: fl.from_items("abc").concat(fl.from_items("xyz")).select_rows([0, 3, 4, 1]),
        list("axyb"),
    ),
    Case(
        "datasets take turns",
        "choose_from_datasets([a, b], range(2).repeat())",
        lambda: A.interleave(B),
        list("ababaa"),
    ),
    Case(
        "turns end with the first empty dataset",
        "choose_from_datasets(..., stop_on_empty_dataset=True)",
        lambda: A.interleave(B, stop="first"),
        list("ababa"),
    ),
    Case(
        "samples are drawn until all have ended",
        "sample_from_datasets([a, b])",
        lambda: sorted(A.choose(B, seed=3)),
        list("aaaabb"),
    ),
    Case(
        "samples end with the first empty dataset",
        "sample_from_datasets(..., stop_on_empty_dataset=True)",
        lambda: list(A.repeat().choose(B, seed=3, stop="first")).count("b"),
        2,
    ),
    Case(
        "samples have weights",
        "sample_from_datasets(ds, [0.2, 0.8])",
        lambda: (
            140
            < A.repeat()
            .choose(B.repeat(), weights=[0.2, 0.8], seed=1)
            .take(200)
            .collect()
            .count("b")
            < 180
        ),
        True,
    ),
    Case(
        "a weight of zero leaves a dataset out",
        "sample_from_datasets(ds, [1.0, 0.0])",
        lambda: A.repeat().choose(B.repeat(), weights=[1, 0]).take(4),
        list("aaaa"),
    ),
    Case(
        "samples of one dataset are that dataset",
        "sample_from_datasets([a], [1.0])",
        lambda: fl.choose([A], weights=[1]),
        list("aaaa"),
    ),
    Case(
        "weights must be one for each",
        "sample_from_datasets([a, b], [1.0])",
        lambda: A.choose(B, weights=[1]),
        Refusal(fl.InvalidFlow, "weights"),
    ),
    Case(
        "weights must not be negative",
        "sample_from_datasets([a, b], [1, -1])",
        lambda: A.choose(B, weights=[1, -1]),
        Refusal(fl.InvalidFlow, "weights"),
    ),
    Case(
        "the same seed has the same samples",
        "sample_from_datasets(ds, seed=5)",
        lambda: A.choose(B, seed=5).collect() == A.choose(B, seed=5).collect(),
        True,
    ),
    Case(
        "samples differ in the next pass",
        "sample_from_datasets(..., rerandomize_each_iteration=True)",
        lambda: (lambda flow: flow.collect() != list(flow.epoch(1)))(
            fl.from_range(30).choose(fl.from_range(30), seed=5)
        ),
        True,
    ),
    Case(
        "rejection resampling has a target distribution",
        "rejection_resample(label, [0.5, 0.5], initial=[0.9, 0.1])",
        lambda: (
            420
            < sum(
                fl.from_items([0] * 90 + [1] * 10).sample(
                    1000, [1 / 90] * 90 + [1 / 10] * 10, seed=1
                )
            )
            < 580
        ),
        True,
    ),
    Case(
        "a dataset is padded to a length",
        "pad_to_cardinality(4)",
        lambda: fl.from_range(3).batch(4, remainder="fill"),
        [([0, 1, 2, 2], [True, True, True, False])],
    ),
)
def test_sizes_and_combinations_have_the_outcome_of_tf_data(case: Case) -> None:
    check(case)


@table(
    Case(
        "shuffle has the same elements",
        "shuffle(3)",
        lambda: sorted(TEN.shuffle(buffer=3, seed=1)),
        list(range(10)),
    ),
    Case(
        "shuffle changes the order",
        "shuffle(10)",
        lambda: TEN.shuffle(seed=1).collect() != list(range(10)),
        True,
    ),
    Case(
        "a buffer of one keeps the order",
        "shuffle(1)",
        lambda: TEN.shuffle(buffer=1, seed=1),
        list(range(10)),
    ),
    Case(
        "a buffer may be larger than the dataset",
        "shuffle(100)",
        lambda: sorted(TEN.shuffle(buffer=100, seed=1)),
        list(range(10)),
    ),
    Case(
        "no element comes before its buffer reaches it",
        "shuffle(3)",
        lambda: all(x < at + 3 for at, x in enumerate(TEN.shuffle(buffer=3, seed=4))),
        True,
    ),
    Case(
        "the same seed has the same order",
        "shuffle(10, seed=37)",
        lambda: TEN.shuffle(seed=37).collect() == TEN.shuffle(seed=37).collect(),
        True,
    ),
    Case(
        "another seed has another order",
        "shuffle(10, seed=38)",
        lambda: TEN.shuffle(seed=37).collect() != TEN.shuffle(seed=38).collect(),
        True,
    ),
    Case(
        "each pass has another order",
        "shuffle(10).repeat(2)",
        lambda: (lambda x: x[:10] != x[10:])(TEN.shuffle(seed=1).repeat(2).collect()),
        True,
    ),
    Case(
        "each pass has all elements",
        "shuffle(10).repeat(2)",
        lambda: (lambda x: sorted(x[:10]) == sorted(x[10:]))(
            TEN.shuffle(seed=1).repeat(2).collect()
        ),
        True,
    ),
    Case(
        "each pass has the same order",
        "shuffle(10, reshuffle_each_iteration=False).repeat(2)",
        lambda: (lambda x: x[:10] == x[10:])(
            TEN.shuffle(seed=1, reshuffle=False).repeat(2).collect()
        ),
        True,
    ),
    Case(
        "shuffle mixes passes",
        "repeat(2).shuffle(20)",
        lambda: sorted(fl.from_range(3).repeat(2).shuffle(seed=2)),
        [0, 0, 1, 1, 2, 2],
    ),
    Case(
        "a buffer of none is refused",
        "shuffle(0)",
        lambda: TEN.shuffle(buffer=0),
        Refusal(fl.InvalidFlow, "buffer"),
    ),
    Case(
        "an empty dataset is shuffled",
        "range(0).shuffle(3)",
        lambda: fl.from_range(0).shuffle(buffer=3),
        [],
    ),
    Case(
        "a global shuffle needs no buffer",
        "global_shuffle(ds)",
        lambda: sorted(TEN.map(lambda i: i).batch(2).shuffle(seed=1).unbatch()),
        list(range(10)),
    ),
    Case(
        "a cached dataset is shuffled in each pass",
        "cache().shuffle(10).repeat(2)",
        lambda: sorted(fl.from_range(3).cache().shuffle(seed=1).repeat(2)),
        [0, 0, 1, 1, 2, 2],
    ),
    Case(
        "a cached dataset is repeated",
        "cache().repeat(2)",
        lambda: fl.from_range(2).cache().repeat(2),
        [0, 1, 0, 1],
    ),
    Case("an empty dataset is cached", "range(0).cache()", lambda: fl.from_range(0).cache(), []),
)
def test_orders_have_the_outcome_of_tf_data(case: Case) -> None:
    check(case)


@table(
    Case("a range", "range(10)", lambda: TEN, 10),
    Case("batch rounds up", "batch(4)", lambda: TEN.batch(4), 3),
    Case(
        "batch rounds down",
        "batch(4, drop_remainder=True)",
        lambda: TEN.batch(4, drop_remainder=True),
        2,
    ),
    Case("a padded batch rounds up", "padded_batch(3)", lambda: RAGGED.padded_batch(3), 2),
    Case("take", "take(3)", lambda: TEN.take(3), 3),
    Case("skip", "skip(3)", lambda: TEN.skip(3), 7),
    Case("repeat", "repeat(3)", lambda: TEN.repeat(3), 30),
    Case("shard", "shard(3, 0)", lambda: TEN.shard(3, 0), 4),
    Case("concatenate", "concatenate(b)", lambda: TEN.concat(TEN), 20),
    Case("zip", "zip(a, b)", lambda: TEN.zip(TEN.repeat()), 10),
    Case("window", "window(3, shift=1, drop_remainder=True)", lambda: TEN.window(3), 8),
    Case(
        "map, shuffle, enumerate, cache, prefetch and scan keep it",
        "map(f)...",
        lambda: (
            TEN.map(lambda i: i)
            .shuffle(seed=1)
            .enumerate()
            .cache()
            .prefetch(threads=1)
            .scan(lambda s, i: (s, i), 0)
        ),
        10,
    ),
    Case("samples add up", "sample_from_datasets([a, b])", lambda: TEN.choose(TEN), 20),
    Case(
        "filter has none",
        "filter(f)",
        lambda: TEN.filter(lambda i: True),
        Refusal(fl.UnknownLength, "filter"),
    ),
    Case(
        "flat_map has none",
        "flat_map(f)",
        lambda: TEN.flat_map(range),
        Refusal(fl.UnknownLength, "flat_map"),
    ),
    Case(
        "unbatch has none",
        "unbatch()",
        lambda: TEN.batch(3).unbatch(),
        Refusal(fl.UnknownLength, "unbatch"),
    ),
    Case(
        "take_while has none",
        "take_while(f)",
        lambda: TEN.take_while(lambda i: True),
        Refusal(fl.UnknownLength, "take_while"),
    ),
    Case(
        "a generator has none",
        "from_generator(f)",
        lambda: fl.from_iterable(endless),
        Refusal(fl.UnknownLength, "from_iterable"),
    ),
    Case(
        "an endless dataset has none",
        "repeat()",
        lambda: TEN.repeat(),
        Refusal(fl.EndlessFlow, "repeat()"),
    ),
)
def test_the_length_is_the_cardinality_of_tf_data(case: Case) -> None:
    flow = case.ours()
    assert isinstance(flow, fl.Flow)
    check(attrs.evolve(case, ours=flow.__len__))


def test_an_asserted_length_is_checked_at_the_end() -> None:
    """tf.data: ds.apply(assert_cardinality(5)), and (6) over five elements."""
    even = TEN.filter(lambda i: i % 2 == 0)
    assert even.zip(fl.from_range(5)).map(fl.c0).collect() == [0, 2, 4, 6, 8]
    with pytest.raises(fl.FlowError, match="zip"):
        even.zip(fl.from_range(6)).collect()

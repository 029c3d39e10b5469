"""Sources and functions of tf.data."""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Iterator

import numpy as np

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

TEN = fl.from_range(10)
PAIRS = fl.from_items([(1, "a"), (2, "b"), (3, "c")])


def skips(flow: fl.Flow[int, fl.Effect]) -> list[str]:
    """The rows that a pass left out."""
    run = iter(flow)
    list(run)
    return [re.findall(r"\((row .*?)\): ", skip.error)[0] for skip in run.statistics().skips]


def endless() -> Iterator[int]:
    return itertools.count(10, 2)


def failing() -> Iterator[int]:
    yield 1
    raise ValueError("no more")


@table(
    Case(
        "an array has its rows",
        "from_tensor_slices(x)",
        lambda: fl.from_items(np.arange(4).reshape(2, 2)),
        [[0, 1], [2, 3]],
    ),
    Case(
        "arrays are sliced together",
        "from_tensor_slices((x, y))",
        lambda: fl.from_items((np.arange(2), np.array([5, 6]))),
        [(0, 5), (1, 6)],
    ),
    Case(
        "a dict of arrays is sliced",
        'from_tensor_slices({"x": x})',
        lambda: fl.from_items({"x": np.arange(2)}),
        [{"x": 0}, {"x": 1}],
    ),
    Case(
        "arrays of different lengths are refused",
        "from_tensor_slices((arange(2), arange(3)))",
        lambda: fl.from_items((np.arange(2), np.arange(3))),
        Refusal(fl.InvalidFlow, "from_items"),
    ),
    Case(
        "an empty array has no rows",
        "from_tensor_slices([])",
        lambda: fl.from_items(np.zeros((0, 2))),
        [],
    ),
    Case(
        "one element is a dataset",
        "from_tensors((1, [2, 3]))",
        lambda: fl.from_items([(1, [2, 3])]),
        [(1, [2, 3])],
    ),
    Case(
        "a list has its items",
        "from_list([...])",
        lambda: fl.from_items([{"a": 1}, {"a": 2}]),
        [{"a": 1}, {"a": 2}],
    ),
    Case("a range has a stop", "range(3)", lambda: fl.from_range(3), [0, 1, 2]),
    Case(
        "a range has a start and a step",
        "range(2, 9, 3)",
        lambda: fl.from_items(range(2, 9, 3)),
        [2, 5, 8],
    ),
    Case("a range goes down", "range(9, 2, -3)", lambda: fl.from_items(range(9, 2, -3)), [9, 6, 3]),
    Case("a range has no elements", "range(3, 3)", lambda: fl.from_items(range(3, 3)), []),
    Case(
        "a range has a dtype",
        "range(3, output_type=tf.int32)",
        lambda: fl.from_items(np.arange(3, dtype=np.int32)).batch(3).map(lambda x: str(x.dtype)),
        ["int32"],
    ),
    Case(
        "a counter never ends",
        "counter(10, 2).take(3)",
        lambda: fl.from_iterable(endless).take(3),
        [10, 12, 14],
    ),
    Case(
        "a generator function is called in each pass",
        "from_generator(f).repeat(2)",
        lambda: fl.from_iterable(lambda: iter([1, 2])).repeat(2),
        [1, 2, 1, 2],
    ),
    Case(
        "a generator function has arguments",
        "from_generator(range, args=(2, 4))",
        lambda: fl.from_iterable(lambda: range(2, 4)),
        [2, 3],
    ),
    Case(
        "a generator yields tuples",
        "from_generator(f, output_types=(...))",
        lambda: fl.from_iterable(lambda: [(1, "x")]),
        [(1, "x")],
    ),
    Case(
        "an error of a generator is raised at its place",
        "from_generator(failing)",
        lambda: fl.from_iterable(failing),
        Refusal(fl.ElementError, "element 1 of from_iterable(failing)): ValueError('no more')"),
    ),
    Case(
        "random numbers have a seed",
        "random(seed=7)",
        lambda: len(
            set(fl.from_range(9).random_map(lambda _, rng: int(rng.integers(2**32)), seed=7))
        ),
        9,
    ),
    Case(
        "random numbers differ in the next pass",
        "random(seed=7, rerandomize_each_iteration=True)",
        lambda: (lambda flow: flow.collect() != list(flow.epoch(1)))(
            fl.from_range(9).random_map(lambda _, rng: int(rng.integers(2**32)), seed=7)
        ),
        True,
    ),
    Case(
        "random numbers are the same in the next pass",
        "random(seed=7, rerandomize_each_iteration=False)",
        lambda: (lambda flow: flow.collect() == list(flow.epoch(1)))(
            fl.from_range(9).random_map(lambda _, rng: int(rng.integers(2**32)), seed=7).cache()
        ),
        True,
    ),
)
def test_a_source_has_the_outcome_of_tf_data(case: Case) -> None:
    check(case)


@table(
    Case(
        "map applies a function", "map(f)", lambda: fl.from_range(3).map(lambda i: i * i), [0, 1, 4]
    ),
    Case(
        "map spreads a tuple",
        "map(lambda x, y: ...)",
        lambda: PAIRS.starmap(lambda i, s: s * i),
        ["a", "bb", "ccc"],
    ),
    Case(
        "map has a dict",
        'map(lambda d: d["x"])',
        lambda: fl.from_items([{"x": 1}]).map(lambda d: d["x"]),
        [1],
    ),
    Case(
        "map makes structures",
        "map(lambda x: (x, {'y': x}))",
        lambda: fl.from_range(2).map(lambda i: (i, {"y": i})),
        [(0, {"y": 0}), (1, {"y": 1})],
    ),
    Case(
        "map may return None",
        "map(lambda x: None)",
        lambda: fl.from_range(2).map(lambda i: None),
        [None, None],
    ),
    Case(
        "a parallel map keeps the order",
        "map(f, num_parallel_calls=2)",
        lambda: TEN.map(lambda i: -i).prefetch(threads=2),
        [-i for i in range(10)],
    ),
    Case(
        "a parallel map need not keep the order",
        "map(f, num_parallel_calls=2, deterministic=False)",
        lambda: sorted(TEN.map(lambda i: -i).prefetch(threads=2, ordered=False)),
        [-i for i in reversed(range(10))],
    ),
    Case(
        "an error of map names its element",
        "map(check_numerics)",
        lambda: TEN.map(lambda i: 1 // (i - 4)),
        Refusal(fl.ElementError, "row 4 of from_range(10)"),
    ),
    Case(
        "ignore_errors leaves failing elements out",
        "map(f).ignore_errors()",
        lambda: TEN.map(lambda i: 6 // (i - 4)).prefetch(threads=1, on_error="skip"),
        [6 // (i - 4) for i in range(10) if i != 4],
    ),
    Case(
        "ignore_errors logs what it leaves out",
        "ignore_errors(log_warning=True)",
        lambda: skips(TEN.map(lambda i: 6 // (i - 4)).prefetch(threads=1, on_error="skip")),
        ["row 4 of from_range(10)"],
    ),
    Case(
        "a table looks keys up",
        "map(table.lookup)",
        lambda: fl.from_items(["b", "z"]).map(lambda s: {"a": 0, "b": 1}.get(s, -1)),
        [1, -1],
    ),
    Case(
        "filter keeps elements",
        "filter(lambda x: x % 3 == 0)",
        lambda: TEN.filter(lambda i: i % 3 == 0),
        [0, 3, 6, 9],
    ),
    Case(
        "filter has tuples",
        "filter(lambda x, y: ...)",
        lambda: PAIRS.filter(lambda x: x[0] > 1),
        [(2, "b"), (3, "c")],
    ),
    Case(
        "filter leaves all out", "filter(lambda x: False)", lambda: TEN.filter(lambda i: False), []
    ),
    Case(
        "filter_map is a map and a filter",
        "map(f).filter(g)",
        lambda: TEN.filter_map(lambda i: i * i if i > 7 else None),
        [64, 81],
    ),
    Case(
        "flat_map joins datasets",
        "flat_map(lambda x: range(x))",
        lambda: fl.from_range(4).flat_map(range),
        [0, 0, 1, 0, 1, 2],
    ),
    Case(
        "flat_map of flows",
        "flat_map(lambda x: range(x).map(f))",
        lambda: fl.from_range(3).flat_map(lambda n: fl.from_range(n).map(lambda i: -i)),
        [0, 0, -1],
    ),
    Case(
        "flat_maps nest",
        "flat_map(lambda x: range(x).flat_map(g))",
        lambda: fl.from_range(4).flat_map(lambda n: fl.from_range(n).flat_map(range)),
        [0, 0, 0, 1],
    ),
    Case(
        "flat_map of nothing is nothing",
        "flat_map(lambda x: range(0))",
        lambda: TEN.flat_map(lambda i: []),
        [],
    ),
    Case(
        "enumerate counts from a number",
        "enumerate(start=5)",
        lambda: fl.from_items("ab").enumerate(5),
        [(5, "a"), (6, "b")],
    ),
    Case(
        "scan has a state",
        "scan(0, lambda s, x: (s + x, s + x))",
        lambda: fl.from_range(5).scan(lambda s, i: (s + i, s + i), 0),
        [0, 1, 3, 6, 10],
    ),
    Case(
        "the state of scan is a tuple",
        "scan((0, 1), fibonacci)",
        lambda: fl.from_range(6).scan(lambda s, _: ((s[1], s[0] + s[1]), s[0]), (0, 1)),
        [0, 1, 1, 2, 3, 5],
    ),
    Case(
        "the state of scan changes its shape",
        "scan([], lambda s, x: ...)",
        lambda: fl.from_range(3).scan(lambda s, i: ([*s, i], len(s)), list[int]()),
        [0, 1, 2],
    ),
    Case(
        "the state of scan begins again in each pass",
        "scan(...).repeat(2)",
        lambda: fl.from_range(3).scan(lambda s, i: (s + i, s + i), 0).repeat(2),
        [0, 1, 3, 0, 1, 3],
    ),
    Case(
        "unique leaves repeated elements out",
        "unique()",
        lambda: (
            fl.from_items([2, 1, 2, 3, 1])
            .scan(lambda seen, x: (seen | {x}, None if x in seen else x), frozenset[int]())
            .filter_map(lambda x: x)
        ),
        [2, 1, 3],
    ),
    Case(
        "take_while ends the pass",
        "take_while(lambda x: x < 3)",
        lambda: TEN.take_while(lambda i: i < 3),
        [0, 1, 2],
    ),
    Case(
        "take_while ends an endless pass",
        "counter().take_while(f)",
        lambda: (
            fl.from_range(4).repeat().scan(lambda n, i: (n + 1, n), 0).take_while(lambda n: n < 6)
        ),
        [0, 1, 2, 3, 4, 5],
    ),
    Case(
        "interleave takes turns among inputs",
        "interleave(f, cycle_length=2)",
        lambda: fl.from_items(["aa", "bb", "cc"]).interleave_map(list, cycle=2),
        list("abab") + list("cc"),
    ),
    Case(
        "interleave takes blocks",
        "interleave(f, cycle_length=2, block_length=2)",
        lambda: fl.from_items(["aaaa", "b", "ccc"]).interleave_map(list, cycle=2, block=2),
        list("aabaaccc"),
    ),
    Case(
        "interleave of one input at a time is flat_map",
        "interleave(f, cycle_length=1)",
        lambda: fl.from_items(["aa", "bb"]).interleave_map(list, cycle=1),
        list("aabb"),
    ),
    Case(
        "interleave has more places than inputs",
        "interleave(f, cycle_length=9)",
        lambda: fl.from_items(["aa", "b"]).interleave_map(list, cycle=9),
        list("aba"),
    ),
    Case(
        "interleave passes empty inputs by",
        "interleave(f) of empty datasets",
        lambda: fl.from_items(["", "aa", "", "b"]).interleave_map(list, cycle=2),
        list("aab"),
    ),
    Case(
        "an error in an input names it",
        "interleave(failing)",
        lambda: fl.from_range(2).interleave_map(lambda i: failing(), cycle=2),
        Refusal(fl.ElementError, "ValueError('no more')"),
    ),
    Case(
        "interleave with prefetched inputs has the same order",
        "interleave(f, num_parallel_calls=2)",
        lambda: (
            fl.from_items(["aaaa", "b", "ccc"])
            .interleave_map(list, cycle=2, block=2)
            .prefetch(threads=1)
        ),
        list("aabaaccc"),
    ),
    Case(
        "prefetch changes nothing", "prefetch(2)", lambda: TEN.prefetch(threads=1), list(range(10))
    ),
    Case(
        "reduce makes one value", "reduce(0, f)", lambda: functools.reduce(operator.add, TEN, 0), 45
    ),
    Case(
        "reduce of an empty dataset is the initial state",
        "range(0).reduce(0, f)",
        lambda: functools.reduce(operator.add, fl.from_range(0), 0),
        0,
    ),
    Case(
        "reduce has a tuple for a state",
        "reduce((0, 0), f)",
        lambda: functools.reduce(lambda s, x: (s[0] + x, s[1] + 1), TEN, (0, 0)),
        (45, 10),
    ),
    Case("the only element", "get_single_element()", lambda: fl.from_items([7]).batch(2)[0], [7]),
    Case(
        "the only element of none",
        "range(0).get_single_element()",
        lambda: fl.from_range(0)[0],
        Refusal(IndexError, "from_range"),
    ),
    Case("a function of datasets", "apply(f)", lambda: TEN.pipe(lambda flow: flow.take(2)), [0, 1]),
    Case(
        "next yields a default at the end",
        "iterator.get_next_as_optional()",
        lambda: next(iter(fl.from_range(0)), None),
        None,
    ),
)
def test_mapping_has_the_outcome_of_tf_data(case: Case) -> None:
    check(case)

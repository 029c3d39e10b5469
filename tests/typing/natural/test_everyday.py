"""Everyday programs: chains in loops, ifs, helpers and classes; texts, boxes, passes."""

from __future__ import annotations

import collections
import contextlib
import csv
import io
import itertools
import json
import operator
import queue
import sqlite3
import statistics
import string
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypedDict, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow
from flowdsl.nodes import IndexTransform, Indices, PassFactory

A = TypeVar("A")
B = TypeVar("B")
E = TypeVar("E", bound=fl.Effect)
E_co = TypeVar("E_co", bound=fl.Effect, covariant=True)
P = ParamSpec("P")
T = TypeVar("T", covariant=True)

# -- chains that depend on something ---------------------------------------------------------------


def numbers(limit: int | None, shuffled: bool) -> list[int]:
    flow: fl.Flow[int, fl.Counted] = fl.from_range(5)
    if limit is not None:
        flow = flow.take(limit)
    if shuffled:
        flow = flow.shuffle(seed=1)
    return flow.collect()


def test_ifs_in_a_chain() -> None:
    assert numbers(3, shuffled=False) == [0, 1, 2]
    assert sorted(numbers(None, shuffled=True)) == [0, 1, 2, 3, 4]


def head_in_some_order(n: int | None) -> list[int]:
    flow = fl.from_range(5)
    if n is not None:
        flow = flow.take(n)
    return flow.shuffle().collect()


def test_a_cut_that_may_be_left_out() -> None:
    assert sorted(head_in_some_order(2)) == [0, 1]
    assert sorted(head_in_some_order(None)) == [0, 1, 2, 3, 4]


def test_same_name_for_every_step() -> None:
    data: fl.Flow[int, fl.Finite] = fl.from_items([3, 1, 2])
    data = data.map(lambda i: i + 1)
    data = data.filter(lambda i: i > 2)
    data = data.repeat(2)
    assert data.collect() == [4, 3, 4, 3]


def test_declared_flow_that_is_chained_on() -> None:
    data: Flow[int] = fl.from_range(6)
    for divisor in (2, 3):

        def has_no(i: int, divisor: int = divisor) -> bool:
            return i % divisor != 0

        data = data.filter(has_no)
    assert list(data) == [1, 5]


def test_loop_that_chains_functions() -> None:
    steps: list[Callable[[float], float]] = [abs, lambda x: x * 2, lambda x: x + 1]
    data = fl.from_items([-1.0, 2.0])
    for step in steps:
        data = data.map(step)
    assert data.batch(2).collect()[0].tolist() == [3.0, 5.0]


def test_one_of_two_sources() -> None:
    for streaming in (False, True):
        data = fl.from_iterable(lambda: iter("abc")) if streaming else fl.from_items("abc")
        assert list(data.map(str.upper)) == ["A", "B", "C"]


def test_train_or_test_in_one_expression() -> None:
    def pipeline(rows: list[tuple[NDArray[np.float32], int]], train: bool) -> int:
        data = fl.from_items(rows)
        ordered = data.shuffle(seed=3) if train else data
        return sum(len(labels) for _, labels in ordered.batch(2))

    rows = [(np.zeros(2, dtype=np.float32), i) for i in range(5)]
    assert pipeline(rows, train=True) == pipeline(rows, train=False) == 5


def loader(
    images: NDArray[np.uint8],
    batch_size: int = 2,
    transform: Callable[[NDArray[np.uint8]], NDArray[np.uint8]] | None = None,
    workers: int = 0,
) -> Flow[NDArray[np.uint8]]:
    rows = fl.from_range(len(images)).map(lambda i: images[i])
    if transform is not None:
        rows = rows.map(transform)
    return rows.shuffle().batch(batch_size).prefetch(threads=workers)


def test_optional_arguments() -> None:
    images = np.full((4, 3, 3), 7, dtype=np.uint8)
    assert sum(int(batch.sum()) for batch in loader(images)) == 252
    assert sum(int(batch.sum()) for batch in loader(images, 3, lambda image: image // 7)) == 36


def test_drop_the_remainder_by_a_flag() -> None:
    for drop in (True, False):
        data = fl.from_range(5).map(lambda i: (np.zeros(2), i)).batch(2, drop_remainder=drop)
        assert len(data.collect()) == (2 if drop else 3)


# -- functions of flows ----------------------------------------------------------------------------


def preprocess(data: Flow[np.ndarray, E]) -> Flow[np.ndarray, E]:
    return data.map(lambda image: image / image.max())


def test_helper_that_takes_and_gives_a_flow() -> None:
    images = fl.from_range(4).map(lambda i: np.full((2, 2), i + 1))
    assert preprocess(images).batch(4).collect()[0].max() == 1.0


def keep_every(data: Flow[A, E], n: int) -> Flow[A, E | fl.Unsized]:
    return data.enumerate().filter(lambda pair: pair[0] % n == 0).map(lambda pair: pair[1])


def test_generic_helper_in_a_pipe() -> None:
    assert fl.from_items("abcdef").pipe(keep_every, 2).collect() == ["a", "c", "e"]
    assert fl.from_range(6).pipe(keep_every, n=3).collect() == [0, 3]


def test_helper_as_a_lambda_in_a_pipe() -> None:
    data = fl.from_range(6).pipe(lambda flow: flow.take(4)).pipe(lambda flow: flow.skip(1))
    assert data.collect() == [1, 2, 3]


def batched_pairs(
    data: Flow[tuple[NDArray[np.float32], int], E],
) -> Flow[tuple[NDArray[np.float32], NDArray[np.int64]], E]:
    return data.batch(2)


def test_helper_that_batches_pairs() -> None:
    data = fl.from_range(4).map(lambda i: (np.zeros(3, dtype=np.float32), i)).pipe(batched_pairs)
    assert [labels.tolist() for _, labels in data] == [[0, 1], [2, 3]]


def compose(
    *steps: Callable[[Flow[np.ndarray]], Flow[np.ndarray]],
) -> Callable[[Flow[np.ndarray]], Flow[np.ndarray]]:
    return lambda data: reduce(lambda flow, step: step(flow), steps, data)


def test_composed_functions_of_flows() -> None:
    pipeline = compose(lambda data: data.map(np.sqrt), lambda data: data.batch(2))
    assert [batch.shape for batch in pipeline(fl.from_items([np.ones(3)] * 4))] == [(2, 3), (2, 3)]


def timed(func: Callable[P, B]) -> Callable[P, B]:
    def wrapped(*args: P.args, **kw: P.kwargs) -> B:
        return func(*args, **kw)

    return wrapped


@timed
def square(x: int) -> int:
    return x * x


def test_decorated_function() -> None:
    assert fl.from_range(3).map(square).batch(3).collect()[0].tolist() == [0, 1, 4]


@attrs.frozen
class Backward(IndexTransform[T, E_co | fl.Reordered], Generic[T, E_co]):
    """A user's own operator: reverses the order."""

    @property
    def title(self) -> str:
        return "backward()"

    @property
    def length(self) -> int | None:
        return self.source.length

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, (self.length or 0) - 1 - addresses.position)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[tuple[int, T]]:
        yield from enumerate(reversed([x for _, x in sources[0](epoch)]))


def test_operator_of_ones_own() -> None:
    data = fl.from_items(["a", "b", "c"]).apply(Backward).map(str.upper)
    assert data.collect() == ["C", "B", "A"]
    pairs = fl.from_range(3).map(lambda i: (np.zeros(2), i)).apply(Backward).batch(3)
    assert [labels.tolist() for _, labels in pairs] == [[2, 1, 0]]


# -- what can be a function ------------------------------------------------------------------------


def power(base: int, exponent: int = 2) -> float:
    return float(base**exponent)


def test_function_with_a_default() -> None:
    assert fl.from_range(4).map(power).batch(4).collect()[0].tolist() == [0.0, 1.0, 4.0, 9.0]


def test_partial_function() -> None:
    cubes = fl.from_range(3).map(partial(power, exponent=3)).batch(3)
    assert cubes.collect()[0].tolist() == [0.0, 1.0, 8.0]


def test_method_of_an_object() -> None:
    table = {"a": 1, "b": 2}
    assert fl.from_items(["a", "b", "a"]).map(table.__getitem__).collect() == [1, 2, 1]
    assert fl.from_items(["a", "c"]).map(table.get).collect() == [1, None]


def test_methods_of_built_in_types() -> None:
    words = fl.from_items([" Ada ", "Grace"]).map(str.strip).map(str.lower).map(len)
    assert words.batch(2).collect()[0].tolist() == [3, 5]


def test_item_getter() -> None:
    rows = fl.from_items([{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}])
    assert rows.map(operator.itemgetter("y")).collect() == [2.0, 4.0]


def test_class_as_a_function() -> None:
    paths = fl.from_items(["a/b.txt", "c.txt"]).map(Path).map(lambda path: path.stem)
    assert paths.collect() == ["b", "c"]


class Normalizer:
    def __init__(self, mean: float, std: float) -> None:
        self.mean = mean
        self.std = std

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return (x - self.mean) / self.std


def test_callable_object() -> None:
    rows = fl.from_items([np.array([1, 3]), np.array([5, 7])]).map(Normalizer(4, 2)).batch(2)
    assert rows.collect()[0].tolist() == [[-1.5, -0.5], [0.5, 1.5]]


def test_closure_over_a_table() -> None:
    def lookup(table: Mapping[str, Sequence[float]]) -> Callable[[str], NDArray[np.float64]]:
        def find(word: str) -> NDArray[np.float64]:
            return np.array(table.get(word, [0.0, 0.0]))

        return find

    vectors = fl.from_items(["cat", "?"]).map(lookup({"cat": [1.0, 2.0]})).batch(2)
    assert vectors.collect()[0].tolist() == [[1.0, 2.0], [0.0, 0.0]]


untyped: Any = SimpleNamespace(
    resize=lambda image, size: image[:size, :size], label=lambda i: i % 2
)


def test_functions_of_a_library_without_types() -> None:
    rows = fl.from_range(4).map(lambda i: (untyped.resize(np.eye(8), 4), untyped.label(i)))
    images, labels = rows.batch(4).collect()[0]
    assert images.shape == (4, 4, 4)
    assert labels.tolist() == [0, 1, 0, 1]


def test_map_with_a_function_without_types() -> None:
    labels = fl.from_range(4).map(untyped.label)
    assert labels.batch(4).collect()[0].tolist() == [0, 1, 0, 1]
    assert labels.shuffle(seed=1).map(str).collect().count("1") == 2


def test_rows_of_data_without_types() -> None:
    rows: Any = json.loads('[{"user": {"age": 3}}, {"user": {"age": 5}}]')
    ages = fl.from_items(rows).map(lambda row: row["user"]["age"]).filter(lambda age: age > 3)
    assert ages.collect() == [5]


def test_objects_of_data_without_types() -> None:
    rows: Any = [SimpleNamespace(x=1, y="a"), SimpleNamespace(x=2, y="b")]
    data = fl.from_items(rows).map(lambda row: (row.x, row.y)).starmap(lambda x, y: f"{y}{x}")
    assert data.collect() == ["a1", "b2"]


def test_rows_of_a_database() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table users (id integer, name text)")
        database.executemany("insert into users values (?, ?)", [(1, "ada"), (2, "grace")])
        rows = database.execute("select id, name from users").fetchall()
    data = fl.from_items(rows).starmap(lambda number, name: {"number": number, "length": len(name)})
    assert data.batch(2).collect()[0]["length"].tolist() == [3, 5]
    assert fl.from_items(rows).map(fl.c1).collect() == ["ada", "grace"]


def test_rows_of_a_database_named() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        places = database.execute("select 1.0, 2.0, 'a' union select 3.0, 4.0, 'b'").fetchall()
    points = fl.from_items(places).starmap(Point).filter(lambda point: point.y > 2)
    assert points.map(lambda point: point.name).collect() == ["b"]


def test_batches_of_rows_of_a_database() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        found: list[tuple[Any, ...]] = database.execute(
            "select 1, 'a' union select 2, 'b'"
        ).fetchall()
    for numbers, names in fl.from_items(found).batch(2):
        assert numbers.tolist() == [1, 2]
        assert names == ["a", "b"]


def test_operators_and_built_in_functions_of_pairs() -> None:
    pairs = fl.from_items([(1, 4), (3, 2)])
    assert pairs.starmap(operator.mul).collect() == [4, 6]
    assert pairs.map(sum).batch(2).collect()[0].tolist() == [5, 5]
    assert pairs.starmap(max).collect() == pairs.map(max).collect() == [4, 3]


def test_numpy_functions_of_arrays() -> None:
    arrays = fl.from_items([np.array([3.0, 4.0]), np.array([0.0, 1.0])])
    assert arrays.map(np.linalg.norm).batch(2).collect()[0].tolist() == [5.0, 1.0]
    assert arrays.map(np.mean).batch(2).collect()[0].tolist() == [3.5, 0.5]
    assert arrays.map(partial(np.clip, a_min=0, a_max=1)).batch(2).collect()[0].sum() == 3


def test_conditions_on_arrays() -> None:
    arrays = fl.from_items([np.array([1.0, np.nan]), np.array([1.0, 2.0]), np.zeros(2)])
    finite = arrays.filter(lambda x: not np.isnan(x).any())
    assert finite.filter(np.any).filter(lambda x: x.sum() > 0).batch(2).collect()[0].shape == (1, 2)


def test_lines_that_are_not_empty_and_no_comments() -> None:
    lines = fl.from_items(["# head", "", "a", "b"])
    kept = lines.filter(lambda line: line and not line.startswith("#"))
    assert kept.collect() == ["a", "b"]


def test_what_is_not_known_is_left_out() -> None:
    ages = fl.from_items([3, None, 5]).filter_map(lambda age: age).map(lambda age: age + 1)
    assert ages.batch(2).collect()[0].tolist() == [4, 6]


def test_filter_map_over_what_may_be_missing() -> None:
    ages = fl.from_items([3, None, 5]).filter_map(lambda age: age).map(lambda age: age + 1)
    assert ages.batch(2).collect()[0].tolist() == [4, 6]


# -- pipelines in classes --------------------------------------------------------------------------


class Trainer:
    train: Flow[tuple[NDArray[np.float64], NDArray[np.int64]]]
    held_out: Flow[tuple[NDArray[np.float64], NDArray[np.int64]], fl.Reordered]

    def __init__(self, rows: Sequence[tuple[NDArray[np.float64], int]], batch_size: int) -> None:
        data = fl.from_items(rows)
        self.train = data.skip(2).shuffle(seed=1).batch(batch_size).repeat()
        self.held_out = data.take(2).batch(batch_size)

    def run(self, steps: int) -> float:
        total = 0.0
        for _, (x, y) in zip(range(steps), self.train, strict=False):
            total += float(x.sum()) + float(y.sum())
        return total


def test_flows_as_attributes() -> None:
    trainer = Trainer([(np.ones(2), 1) for _ in range(6)], batch_size=2)
    assert trainer.run(steps=3) == 18.0
    assert sum(len(y) for _, y in trainer.held_out) == 2


@dataclass
class DataModule:
    rows: list[tuple[list[float], str]]
    batch_size: int = 2
    classes: list[str] = field(default_factory=lambda: ["no", "yes"])

    def encode(self, features: list[float], name: str) -> tuple[NDArray[np.float64], int]:
        return np.array(features), self.classes.index(name)

    def train_loader(self) -> Flow[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        return fl.from_items(self.rows).starmap(self.encode).shuffle(seed=0).batch(self.batch_size)


def test_data_module() -> None:
    module = DataModule([([1.0, 2.0], "yes"), ([3.0, 4.0], "no")])
    features, labels = next(iter(module.train_loader()))
    assert features.shape == (2, 2)
    assert sorted(labels.tolist()) == [0, 1]


def test_dict_of_flows() -> None:
    rows = [(np.zeros(2), i) for i in range(6)]
    flows = {"train": fl.from_items(rows[:4]), "test": fl.from_items(rows[4:])}
    batches = {name: flow.shuffle(seed=1).batch(2) for name, flow in flows.items()}
    assert {name: sum(len(y) for _, y in flow) for name, flow in batches.items()} == {
        "train": 4,
        "test": 2,
    }


def test_dict_of_unlike_flows() -> None:
    flows: dict[Literal["train", "test"], Flow[np.ndarray]] = {
        "train": fl.from_items([np.zeros(2)] * 4).shuffle().repeat(2).batch(2),
        "test": fl.from_items([np.zeros(2)] * 3).batch(2),
    }
    assert [len(list(flow)) for flow in flows.values()] == [4, 2]


# -- elements of every kind ------------------------------------------------------------------------


class Point(NamedTuple):
    x: float
    y: float
    name: str


def test_named_tuples_and_their_fields() -> None:
    points = fl.from_items([Point(1.0, 2.0, "a"), Point(3.0, 4.0, "b")])
    x, y, names = points.filter(lambda p: p.y > 0).batch(2).collect()[0]
    assert (x + y).tolist() == [3.0, 7.0]
    assert names == ["a", "b"]


@dataclass
class Clip:
    samples: NDArray[np.float32]
    rate: int
    loud: bool = False


def test_dataclasses_changed_and_batched() -> None:
    clips = fl.from_items([Clip(np.full(4, i, dtype=np.float32), 16000) for i in range(3)])
    marked = clips.map(lambda clip: replace(clip, loud=bool(clip.samples.max() > 1)))
    samples, rates, loud = marked.batch(3).collect()[0]
    assert samples.shape == (3, 4)
    assert rates.dtype == np.int64
    assert loud.tolist() == [False, False, True]


@attrs.frozen
class Step:
    state: NDArray[np.float64]
    action: int
    reward: float
    done: bool


class Steps(NamedTuple):
    state: NDArray[np.float64]
    action: NDArray[np.int64]
    reward: NDArray[np.float64]
    done: NDArray[np.bool_]


def test_replay_of_attrs_steps() -> None:
    replay = fl.from_items([Step(np.ones(3) * i, i % 2, i / 10, i == 4) for i in range(5)])
    steps = replay.shuffle(seed=1).batch(5).starmap(Steps).collect()[0]
    assert steps.reward[~steps.done].max() < 0.4
    assert steps.state.shape == (5, 3)


class Row(TypedDict):
    user: int
    item: int
    rating: float


def test_typed_dicts_of_ratings() -> None:
    rows: list[Row] = [{"user": i, "item": 2 * i, "rating": i / 2} for i in range(4)]
    liked = fl.from_items(rows).filter(lambda row: row["rating"] >= 1)
    batch = liked.batch(2).collect()[0]
    assert batch["user"].tolist() == [2, 3]
    assert batch["rating"].mean() == 1.25


def test_tuples_of_six_components() -> None:
    rows = fl.from_items([(i, i / 2, i > 1, str(i), np.zeros(i % 1 + 2), b"x") for i in range(3)])
    ids, halves, large, names, arrays, raw = rows.batch(3).collect()[0]
    assert ids.dtype == np.int64
    assert halves.dtype == np.float64
    assert large.tolist() == [False, False, True]
    assert names == ["0", "1", "2"]
    assert arrays.shape == (3, 2)
    assert raw == [b"x"] * 3


def test_numbers_of_every_kind() -> None:
    assert fl.from_items([True, False]).batch(2).collect()[0].dtype == np.bool_
    assert fl.from_items([1.5, 2.5]).batch(2).collect()[0].dtype == np.float64
    assert fl.from_items([1j, 2j]).batch(2).collect()[0].dtype == np.complex128
    assert fl.from_items([np.float32(1), np.float32(2)]).batch(2).collect()[0].dtype == np.float32


def test_texts_batch_to_lists() -> None:
    batches = fl.from_items(["a", "b", "c"]).batch(2).collect()
    assert batches == [["a", "b"], ["c"]]
    assert [batch[0].upper() for batch in batches] == ["A", "C"]


def test_lists_of_lists_stack() -> None:
    boards = fl.from_items([[[0, 1], [1, 0]], [[1, 1], [0, 0]]])
    assert boards.batch(2).collect()[0].sum(axis=(1, 2)).tolist() == [2, 2]


def test_ordered_and_default_dicts() -> None:
    def count(text: str) -> OrderedDict[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for letter in text:
            found[letter] += 1
        return OrderedDict((letter, found[letter]) for letter in "ab")

    counts = fl.from_items(["ab", "aab"]).map(count).batch(2).collect()[0]
    assert counts["a"].tolist() == [1, 2]


def brighten(image: NDArray[np.float64], factor: float = 2.0) -> NDArray[np.float64]:
    return image * factor


def test_rows_of_an_array_to_a_typed_function() -> None:
    images = fl.from_items(np.ones((4, 2, 2))).map(brighten)
    assert images.batch(4).collect()[0].sum() == 32


def test_rows_of_an_array_indexed() -> None:
    table = fl.from_items(np.arange(6).reshape(3, 2))
    assert table.map(lambda row: row[1] - row[0]).batch(3).collect()[0].tolist() == [1, 1, 1]
    for left, right in table:
        assert left + 1 == right


def test_rows_of_an_array_flipped_and_listed() -> None:
    table = fl.from_items(np.arange(4).reshape(2, 2))
    both_ways = table.flat_map(lambda row: [row, row[::-1]])
    assert [row.tolist() for row in both_ways] == [[0, 1], [1, 0], [2, 3], [3, 2]]


def test_numbers_of_an_array() -> None:
    labels = fl.from_items(np.array([3, 1, 2]))
    assert labels.filter(lambda label: label > 1).map(int).collect() == [3, 2]
    assert max(int(label) for label in labels) == 3


def test_rows_of_two_arrays_to_a_typed_function() -> None:
    def weigh(x: NDArray[np.float64], y: int) -> float:
        return float(x.sum()) * y

    data = fl.from_items((np.ones((3, 2)), np.arange(3)))
    assert data.starmap(weigh).collect() == [0.0, 2.0, 4.0]
    assert data.filter(lambda row: row[1] > 0).map(lambda row: row[0][0]).collect() == [1.0, 1.0]


def test_columns_of_arrays_to_a_function_of_dicts() -> None:
    def total(row: dict[str, Any]) -> float:
        return float(row["x"].sum() + row["y"])

    data = fl.from_items({"x": np.ones((3, 2)), "y": np.arange(3)})
    assert data.map(total).collect() == [2.0, 3.0, 4.0]
    assert data.select("y").batch(3).collect()[0]["y"].tolist() == [0, 1, 2]


def test_columns_of_typed_dicts() -> None:
    rows: list[Row] = [{"user": i, "item": 2 * i, "rating": i / 2} for i in range(4)]
    batch = fl.from_items(rows).select("user", "rating").batch(4).collect()[0]
    assert batch["rating"].sum() == 3.0
    stars = fl.from_items(rows).map_component(lambda rating: rating * 2, "rating")
    assert stars.batch(4).collect()[0]["rating"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_column_of_typed_dicts_to_another_type() -> None:
    rows: list[Row] = [{"user": i, "item": 2 * i, "rating": i / 2} for i in range(4)]
    one_hot = fl.from_items(rows).map_component(lambda user: np.eye(4)[user], "user")
    assert one_hot.batch(4).collect()[0]["user"].shape == (4, 4)


def test_last_component_and_the_second_one() -> None:
    rows = fl.from_items([(np.zeros(2), i, f"{i}") for i in range(3)])
    changed = rows.map_component(lambda text: text + "!", -1).map_component(
        lambda i: i / 2, index=1
    )
    arrays, halves, texts = changed.batch(3).collect()[0]
    assert arrays.shape == (3, 2)
    assert halves.tolist() == [0.0, 0.5, 1.0]
    assert texts == ["0!", "1!", "2!"]


def test_selectors_of_ones_own() -> None:
    points = fl.from_items([Point(1.0, 2.0, "a"), Point(3.0, 4.0, "b")])
    names, sums = points.select(lambda p: p.name, lambda p: p.x + p.y).batch(2).collect()[0]
    assert names == ["a", "b"]
    assert sums.tolist() == [3.0, 7.0]
    assert points.select(fl.c2, fl.c0).collect() == [("a", 1.0), ("b", 3.0)]


def test_tuples_of_unknown_length() -> None:
    rows: list[tuple[float, ...]] = [(1.0, 2.0), (3.0, 4.0)]
    data = fl.from_items(rows)
    assert data.map(lambda row: row[1]).collect() == [2.0, 4.0]
    x, y = data.batch(2).collect()[0]
    assert x.tolist() == [1.0, 3.0]
    assert y.tolist() == [2.0, 4.0]


def test_differences_of_neighbours() -> None:
    prices = fl.from_items([1.0, 3.0, 2.0])
    changes = prices.window(2).starmap(lambda before, after: after - before)
    assert changes.batch(2).collect()[0].tolist() == [2.0, -1.0]


def test_moving_average() -> None:
    prices = fl.from_items([1.0, 3.0, 2.0, 4.0])
    assert prices.window(2).map(statistics.mean).collect() == [2.0, 2.5, 3.0]
    assert prices.window(3).map(np.array).map(np.mean).batch(2).collect()[0].tolist() == [2.0, 3.0]


@dataclass
class User:
    name: str
    born: date | None = None


USERS = {"ann": User("Ann", date(1990, 1, 1)), "bob": User("Bob")}


def test_conditions_that_look_something_up() -> None:
    names = fl.from_items(["ann", "eve", "bob"])
    assert names.filter(USERS.get).collect() == ["ann", "bob"]
    assert names.take_while(lambda name: USERS.get(name)).collect() == ["ann"]
    users = names.filter_map(USERS.get)
    assert users.filter(lambda user: user.born).map(lambda user: user.name).collect() == ["Ann"]


def count_windows(stacked: bool, by_sign: bool) -> int:
    prices = fl.from_items([1.0, 3.0, 2.0])
    if by_sign:
        signs = prices.window(2, stack=stacked, key=lambda price: price > 0)
        return len(signs.collect())
    return len(prices.window(2, stack=stacked).collect())


def test_flags_of_a_program() -> None:
    assert count_windows(stacked=False, by_sign=True) == 2
    assert count_windows(stacked=True, by_sign=False) == 2


# -- text, sound, pictures -------------------------------------------------------------------------


def tokenize(text: str) -> list[str]:
    return text.lower().translate(str.maketrans("", "", string.punctuation)).split()


def test_vocabulary_from_a_corpus() -> None:
    texts = fl.from_items(["The cat sat.", "A cat!"])
    counts = Counter(texts.flat_map(tokenize))
    vocabulary = {word: i for i, (word, _) in enumerate(counts.most_common())}
    ids = texts.map(tokenize).map(lambda words: [vocabulary[word] for word in words])
    assert ids.padded_batch(2, padding=-1).collect()[0].shape == (2, 3)


def test_padded_words() -> None:
    words = fl.from_items(["the cat sat", "a cat"]).map(lambda text: np.array(text.split()))
    batch = words.padded_batch(2).collect()[0]
    assert batch.tolist() == [["the", "cat", "sat"], ["a", "cat", ""]]


def test_padded_words_of_unlike_widths() -> None:
    words = fl.from_items(["the elephant", "a"]).map(lambda text: np.array(text.split()))
    assert words.padded_batch(2).collect()[0].tolist() == [["the", "elephant"], ["a", ""]]


def test_next_token_pairs() -> None:
    tokens = np.arange(100)
    blocks = fl.from_range(100 // 10 - 1).map(lambda i: tokens[10 * i : 10 * i + 11])
    pairs = blocks.map(lambda block: (block[:-1], block[1:])).shuffle(seed=1).batch(3)
    for inputs, targets in pairs:
        assert inputs.shape == targets.shape
        assert np.all(targets - inputs == 1)


def test_sliding_windows_of_sound() -> None:
    def frames(samples: NDArray[np.float32], size: int, hop: int) -> Iterator[NDArray[np.float32]]:
        for start in range(0, len(samples) - size + 1, hop):
            yield samples[start : start + size]

    clips = fl.from_items([np.zeros(16, dtype=np.float32), np.ones(8, dtype=np.float32)])
    batches = clips.flat_map(lambda clip: frames(clip, size=8, hop=4)).batch(4).collect()
    assert batches[0].shape == (4, 8)


def test_spectrogram_of_every_clip() -> None:
    clips = fl.from_items([(np.sin(np.arange(32) * k), k) for k in (1, 2)])
    spectra = clips.map_component(lambda clip: np.abs(np.fft.rfft(clip)))
    x, k = spectra.batch(2).collect()[0]
    assert x.shape == (2, 17)
    assert k.tolist() == [1, 2]


class Detection(TypedDict):
    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: list[int]


def detection(i: int) -> Detection:
    n = i % 3 + 1
    return {
        "image": np.zeros((4, 4, 3), dtype=np.uint8),
        "boxes": np.ones((n, 4), dtype=np.float32),
        "labels": [i] * n,
    }


def test_boxes_padded_to_the_most() -> None:
    batch = fl.from_range(3).map(detection).padded_batch(3).collect()[0]
    assert batch["image"].shape == (3, 4, 4, 3)
    assert batch["boxes"].shape == (3, 3, 4)
    assert batch["labels"].tolist() == [[0, 0, 0], [1, 1, 0], [2, 2, 2]]


def test_boxes_kept_as_a_list() -> None:
    batches = (
        fl.from_range(3)
        .map(detection)
        .batch(
            3,
            collate=lambda rows: (np.stack([r["image"] for r in rows]), [r["boxes"] for r in rows]),
        )
    )
    for images, boxes in batches:
        assert images.shape == (3, 4, 4, 3)
        assert [len(b) for b in boxes] == [1, 2, 3]


def test_segmentation_with_a_nested_tuple_of_masks() -> None:
    def row(i: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], str]:
        return np.zeros((4, 4, 3)), (np.zeros((4, 4), dtype=bool), np.ones((4, 4))), f"{i}.png"

    for image, (mask, weight), name in fl.from_range(4).map(row).batch(2):
        assert image.shape == (2, 4, 4, 3)
        assert not mask.any()
        assert weight.sum() == 32
        assert name[0].endswith(".png")


def test_several_tasks_by_name() -> None:
    def row(i: int) -> tuple[np.ndarray, dict[str, int]]:
        return np.zeros((2, 2)), {"digit": i, "parity": i % 2}

    images, targets = fl.from_range(4).map(row).batch(4).collect()[0]
    assert images.shape == (4, 2, 2)
    assert targets["parity"].tolist() == [0, 1, 0, 1]


def score(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> float:
    return float(np.mean(images[:, 0, 0] == labels))


def test_batches_passed_to_a_typed_function() -> None:
    def picture(i: int) -> tuple[NDArray[np.uint8], int]:
        return np.full((2, 2), i, dtype=np.uint8), i

    batches = fl.from_range(6).map(picture).batch(3)
    assert [score(images, labels) for images, labels in batches] == [1.0, 1.0]
    assert batches.starmap(score).collect() == [1.0, 1.0]


# -- files -----------------------------------------------------------------------------------------


def test_csv_rows_to_arrays() -> None:
    text = "a,b,label\n1,2,0\n3,4,1\n"
    rows = [*csv.DictReader(io.StringIO(text))]
    data = fl.from_items(rows).map(
        lambda row: (np.array([float(row["a"]), float(row["b"])]), row["label"] == "1")
    )
    x, y = data.batch(2).collect()[0]
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y.tolist() == [False, True]


def test_json_lines_with_some_broken(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"ms": 3}\nbroken\n{"ms": 5}\n')

    def parse(line: str) -> dict[str, int] | None:
        try:
            parsed: dict[str, int] = json.loads(line)
        except json.JSONDecodeError:
            return None
        return parsed

    times = fl.from_iterable(lambda: file.read_text().splitlines()).filter_map(parse)
    assert times.batch(2).collect()[0]["ms"].tolist() == [3, 5]


def test_arrays_in_files_by_name(tmp_path: Path) -> None:
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", x=np.full(2, i), y=i)

    def load(path: str) -> dict[str, np.ndarray]:
        with np.load(path) as file:
            return {"x": file["x"], "y": file["y"]}

    batch = fl.from_files(str(tmp_path / "*.npz")).map(load).batch(3).collect()[0]
    assert batch["x"].sum() == 6
    assert batch["y"].tolist() == [0, 1, 2]


class Record(NamedTuple):
    pixels: NDArray[np.uint8]
    label: int
    name: str


def test_named_records_stored_and_read(tmp_path: Path) -> None:
    rows = [Record(np.full(4, i, dtype=np.uint8), i, f"r{i}") for i in range(5)]
    count = fl.from_items(rows).write_lmdb(tmp_path / "rows.lmdb")
    stored = fl.from_lmdb(tmp_path / "rows.lmdb", Record)
    assert count == stored.size() == 5
    pixels, labels, names = stored.batch(5).collect()[0]
    assert np.array_equal(pixels[:, 0], labels)
    assert names[-1] == "r4"


def test_an_open_file_for_each_pass(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("b\na\n")

    def words() -> Iterable[str]:
        with file.open() as lines:
            yield from map(str.strip, lines)

    data = fl.from_iterable(words)
    assert data.repeat(2).collect() == ["b", "a", "b", "a"]


def test_paths_in_a_list(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / name).write_text(name * 2)
    texts = fl.from_items(sorted(tmp_path.iterdir())).map(Path.read_text)
    assert texts.collect() == ["aa", "bb"]
    assert fl.from_files([tmp_path / "a", tmp_path / "b"]).map(Path).map(Path.read_text).size() == 2


def test_pairs_of_files_with_one_name(tmp_path: Path) -> None:
    for i in range(2):
        np.save(tmp_path / f"{i}.image.npy", np.full((2, 2), i))
        np.save(tmp_path / f"{i}.mask.npy", np.full((2, 2), i == 1))
    images = fl.from_files(tmp_path / "*.image.npy").map(np.load)
    masks = fl.from_files(tmp_path / "*.mask.npy").map(np.load)
    image, mask = images.zip(masks).shuffle(seed=1).batch(2).collect()[0]
    assert image[mask].tolist() == [1, 1, 1, 1]


# -- passes ----------------------------------------------------------------------------------------


def test_resume_in_the_midst_of_a_pass() -> None:
    data = fl.from_range(10).map(lambda i: (np.zeros(2), i)).shuffle(seed=5).batch(2)
    run = iter(data)
    seen = [next(run)[1].tolist() for _ in range(2)]
    rest = [labels.tolist() for _, labels in data.resume(run.state_dict())]
    assert sorted(i for labels in seen + rest for i in labels) == [*range(10)]


def test_state_kept_with_the_weights_of_a_model() -> None:
    data = fl.from_range(4).shuffle(seed=2)
    checkpoint: dict[str, Any] = {"weights": np.zeros(2), "data": None}
    for epoch in data.epochs(1):
        for step, _ in enumerate(epoch):
            if step == 1:
                checkpoint["data"] = epoch.state_dict()
                break
    assert len(list(data.resume(checkpoint["data"]))) == 2


def test_epochs_numbered_and_resumed() -> None:
    data = fl.from_range(6).map(lambda i: (i, i / 2)).shuffle(seed=2).batch(2)
    state: dict[str, Any] | None = None
    seen: list[int] = []
    for epoch in data.epochs(2):
        for ids, _ in epoch:
            seen += ids.tolist()
            if len(seen) == 8:
                state = epoch.state_dict()
        if state is not None:
            break
    again = [i for epoch in data.epochs(2, resume=state) for ids, _ in epoch for i in ids.tolist()]
    assert again == seen[8:]


def test_cache_what_is_slow_to_make() -> None:
    calls: list[int] = []

    def slow(i: int) -> tuple[np.ndarray, int]:
        calls.append(i)
        return np.full(2, i), i

    data = fl.from_range(3).map(slow).cache().shuffle(seed=1).batch(3)
    assert len(data.collect()) == len(list(data.epoch(1))) == 1
    assert calls == [0, 1, 2]


def test_lengths_before_and_after() -> None:
    rows = fl.from_items([(np.zeros(2), i) for i in range(7)])
    assert (len(rows), len(rows.batch(3)), rows.batch(3, drop_remainder=True).size()) == (7, 3, 2)
    with pytest.raises(fl.UnknownLength):
        len(rows.filter(lambda row: row[1] > 3))


def test_bar_of_progress() -> None:
    data = fl.from_range(4).map(lambda i: (i, i / 2)).batch(2)
    assert sum(int(ids.sum()) for ids, _ in data.progress("train")) == 6


def test_rows_from_a_queue() -> None:
    waiting: queue.Queue[tuple[NDArray[np.float64], int] | None] = queue.Queue()
    for i in range(3):
        waiting.put((np.zeros(2), i))
    waiting.put(None)
    rows = fl.from_queue(waiting).filter_map(lambda row: row).batch(3)
    assert [labels.tolist() for _, labels in rows] == [[0, 1, 2]]


def test_speed_of_a_flow() -> None:
    speed = fl.from_range(20).map(lambda i: (np.zeros(2), i)).batch(2).repeat().measure(size=10)
    assert speed.elements == 10


def test_histogram_of_labels() -> None:
    labels = fl.from_range(20).map(lambda i: (np.zeros(1), i % 4)).map(lambda row: row[1])
    assert collections.Counter(labels) == {0: 5, 1: 5, 2: 5, 3: 5}


def test_first_batch_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    data = fl.from_items([(np.zeros((2, 2)), 1, "a")] * 4).inspect().batch(2)
    images, labels, names = next(iter(data))
    assert (images.shape, labels.tolist(), names) == ((2, 2, 2), [1, 1], ["a", "a"])
    assert "tuple with 3 components" in capsys.readouterr().err


# -- joined and taken apart ------------------------------------------------------------------------


def test_zip_and_batch_three_flows() -> None:
    x = fl.from_range(4).map(lambda i: np.full(2, i / 2))
    y = fl.from_range(4).map(lambda i: i % 2 == 0)
    names = fl.from_items(["a", "b", "c", "d"])
    features, even, letters = x.zip(y).zip(names).batch(4).collect()[0]
    assert features.shape == (4, 2)
    assert even.tolist() == [True, False, True, False]
    assert letters[3] == "d"


def test_concat_of_rows_made_in_two_ways() -> None:
    real = fl.from_items([(np.ones(3), 1)])
    made = fl.from_range(2).map(lambda i: (np.zeros(3), 0))
    x, y = real.concat(made).batch(3).collect()[0]
    assert x.sum() == 3
    assert y.tolist() == [1, 0, 0]


def test_concat_with_a_shuffled_part() -> None:
    easy = fl.from_range(3)
    hard = fl.from_range(6).filter(lambda i: i > 2).shuffle(4, seed=1)
    assert sorted(easy.concat(hard)) == [0, 1, 2, 3, 4, 5]


def test_curriculum_of_three_parts() -> None:
    parts = [fl.from_items([f"{level}{i}" for i in range(2)]) for level in ("easy", "mid", "hard")]
    curriculum = reduce(lambda a, b: a.concat(b), parts)
    assert curriculum.collect()[-1] == "hard1"


def test_unbatch_to_rows_again() -> None:
    batches = fl.from_range(6).map(lambda i: (np.full(2, i), i)).batch(4)
    labels = [int(label) for _, label in batches.unbatch()]
    assert labels == [0, 1, 2, 3, 4, 5]


def test_batch_again_with_another_size() -> None:
    batches = fl.from_range(6).map(lambda i: (np.full(2, i), i)).batch(4)
    for x, y in batches.unbatch().batch(3):
        assert x.shape == (3, 2)
        assert y.shape == (3,)


def test_unbatch_an_array_of_a_file_each() -> None:
    files = fl.from_items([np.arange(4), np.arange(4, 7)])
    assert files.unbatch().map(lambda x: x * 2).batch(7).collect()[0].tolist() == [
        0, 2, 4, 6, 8, 10, 12,
    ]  # fmt: skip


def test_train_and_validation_and_test() -> None:
    rows = fl.from_items([{"x": np.zeros(2), "y": i} for i in range(20)])
    rest, test = rows.split(0.8, seed=1)
    train, validation = rest.split(0.75, seed=2)
    sizes = [len(part.collect()) for part in (train, validation, test)]
    assert sizes == [12, 4, 4]


def test_split_and_train_on_it() -> None:
    train, held_out = fl.from_range(10).map(lambda i: (np.zeros(2), i)).split(0.8, seed=1)
    batches = train.shuffle(seed=1).batch(4).repeat().take(5)
    assert len(batches.collect()) == 5
    assert sum(len(labels) for _, labels in held_out.batch(2)) == 2


def test_each_row_of_the_held_out_part_once() -> None:
    def each_once(flow: Flow[tuple[Any, NDArray[np.int64]], fl.Reordered]) -> list[int]:
        return sorted(int(label) for _, labels in flow for label in labels)

    rows = fl.from_items([(np.zeros(2), i) for i in range(5)])
    assert each_once(rows.shuffle(seed=2).batch(2)) == [0, 1, 2, 3, 4]
    assert each_once(rows.batch(2).prefetch(procs=1)) == [0, 1, 2, 3, 4]


def test_unbatched_rows_to_a_typed_function() -> None:
    batches = fl.from_items([np.ones((2, 3)), np.zeros((1, 3))])
    assert batches.unbatch().map(brighten).batch(3).collect()[0].sum() == 12
    assert [row[0] for row in batches.unbatch()] == [1.0, 1.0, 0.0]


def test_unbatched_pairs_to_a_typed_function() -> None:
    def describe(image: NDArray[np.float64], label: np.integer) -> str:
        return f"{label}: {image.shape}"

    batches = fl.from_range(2).map(lambda i: (np.zeros((2, 4)), i)).batch(2)
    assert batches.unbatch().starmap(describe).collect() == ["0: (2, 4)", "1: (2, 4)"]


def test_unbatched_lists() -> None:
    batches = fl.from_items(["a", "b", "c"]).batch(2)
    assert batches.unbatch().map(str.upper).collect() == ["A", "B", "C"]


def test_shards_put_together_again() -> None:
    parts = [fl.from_range(8).shard(4, i) for i in range(4)]
    assert parts[0].concat(*parts[1:]).collect() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert parts[0].interleave(*parts[1:]).collect() == [*range(8)]


def test_concat_in_a_loop() -> None:
    whole = fl.from_range(2)
    for n in (1, 3):
        whole = whole.concat(fl.from_range(n))
    assert whole.batch(6).collect()[0].tolist() == [0, 1, 0, 0, 1, 2]


def test_mix_of_a_function_and_a_lambda() -> None:
    def made(i: int) -> tuple[NDArray[np.float64], int]:
        return np.zeros(2), i

    a = fl.from_range(3).map(lambda i: (np.ones(2), i)).mix(fl.from_range(3).map(made), seed=1)
    b = fl.from_range(3).map(made).interleave(fl.from_range(3).map(lambda i: (np.ones(2), i)))
    assert sorted(label for _, label in a) == sorted(label for _, label in b) == [0, 0, 1, 1, 2, 2]


def test_flow_in_python_loops() -> None:
    data = fl.from_items([(np.zeros(3), i) for i in range(3)])
    assert [i for i, (_, label) in enumerate(data, 1) if label == 1] == [2]
    assert [label for _, label in itertools.islice(data, 2)] == [0, 1]
    assert np.stack([x for x, _ in data]).shape == (3, 3)
    _, labels = zip(*data, strict=True)
    assert labels == (0, 1, 2)
    (_, first), *rest = data
    assert (first, len(rest)) == (0, 2)


def test_flows_with_declared_types() -> None:
    numbers: Flow[float] = fl.from_range(3)
    pairs: Flow[tuple[np.ndarray, int], fl.Exact] = fl.from_items([(np.zeros(2), 1)])
    rows: Flow[dict[str, Any]] = fl.from_items([{"a": 1, "b": "x"}])
    table: Flow[Mapping[str, object]] = fl.from_items([{"a": 1, "b": "x"}])
    batches: Flow[NDArray[np.int64], fl.Reordered] = fl.from_range(4).shuffle().batch(2)
    named: Flow[dict[str, NDArray[np.float64]]] = fl.from_range(2).map(
        lambda i: {"x": np.zeros(i + 1)}
    )
    flows: list[Flow[Any]] = [numbers, pairs, rows, table, batches, named]
    assert [len(flow) for flow in flows] == [3, 1, 1, 1, 2, 2]


def test_a_run_with_a_declared_type() -> None:
    data = fl.from_range(3).map(lambda i: (i, str(i)))
    run: Iterator[tuple[int, str]] = iter(data)
    assert next(run) == (0, "0")
    with iter(data) as another:
        assert [text for _, text in another] == ["0", "1", "2"]


def test_two_flows_in_one_loop() -> None:
    train = fl.from_items([(np.ones(2), 1), (np.zeros(2), 0)])
    totals = [
        float(sum(x.sum() for x, _ in data)) for data in (train, train.shuffle(), train.repeat(2))
    ]
    assert totals == [2.0, 2.0, 4.0]


# -- random ----------------------------------------------------------------------------------------


def random_crop(
    image: NDArray[np.uint8], rng: np.random.Generator, size: int = 2
) -> NDArray[np.uint8]:
    top, left = (int(rng.integers(n - size + 1)) for n in image.shape[:2])
    return image[top : top + size, left : left + size]


def test_augment_with_a_default_argument() -> None:
    images = fl.from_items([np.arange(16, dtype=np.uint8).reshape(4, 4)] * 3)
    assert images.random_map(random_crop, seed=1).batch(3).collect()[0].shape == (3, 2, 2)


def test_augment_a_dict_with_mixed_values() -> None:
    def jitter(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**row, "image": row["image"] + rng.normal(size=row["image"].shape)}

    rows = [{"image": np.zeros((2, 2)), "label": i, "name": f"{i}"} for i in range(4)]
    batch = fl.from_items(rows).random_map(jitter, seed=1).batch(4).collect()[0]
    assert batch["image"].std() > 0
    assert batch["label"].tolist() == [0, 1, 2, 3]
    assert batch["name"] == ["0", "1", "2", "3"]


def test_drop_rows_at_random() -> None:
    def draw(i: int, rng: np.random.Generator) -> tuple[int, float]:
        return i, float(rng.random())

    drawn = fl.from_range(100).random_map(draw, seed=3)
    kept = drawn.filter(lambda pair: pair[1] < 0.5).map(lambda pair: pair[0])
    assert 30 < len(kept.collect()) < 70


def test_negative_samples_for_pairs() -> None:
    pairs = fl.from_items([(user, user * 2) for user in range(5)])

    def with_negative(
        pair: tuple[int, int], rng: np.random.Generator
    ) -> tuple[tuple[int, int], int]:
        return pair, int(rng.integers(100, 200))

    for (users, items), negatives in pairs.random_map(with_negative, seed=1).batch(5):
        assert (users * 2).tolist() == items.tolist()
        assert negatives.min() >= 100

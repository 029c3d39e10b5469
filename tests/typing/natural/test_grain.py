"""Programs of Grain users: random access, transforms as classes, mixtures, checkpoints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow

T_co = TypeVar("T_co", covariant=True)


class RandomAccess(Protocol[T_co]):
    def __len__(self) -> int: ...
    def __getitem__(self, index: SupportsIndex, /) -> T_co: ...


class Squares:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        i = index.__index__()
        return {"x": np.full(3, i), "y": i * i}


def rows_of(source: RandomAccess[T_co]) -> Flow[T_co, fl.Exact]:
    return fl.from_range(len(source)).map(lambda i: source[i])


def test_source_of_random_access() -> None:
    dataset = rows_of(Squares()).shuffle(seed=42).batch(4)
    for batch in dataset:
        assert batch["x"].shape == (4, 3)
        assert np.array_equal(batch["x"][:, 0] ** 2, batch["y"])


def test_chain_of_maps_over_a_range() -> None:
    dataset = fl.from_range(10).shuffle(seed=10).map(lambda x: x + 1).map(lambda x: x * 10)
    batches = dataset.batch(5).collect()
    assert sorted(np.concatenate(batches).tolist()) == [*range(10, 101, 10)]


@dataclasses.dataclass
class Plus:
    amount: int

    def map(self, element: int) -> int:
        return element + self.amount


def test_method_of_a_transform() -> None:
    plus = Plus(3)
    assert fl.from_range(4).map(plus.map).collect() == [3, 4, 5, 6]


class RandomCrop:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(
        self, features: dict[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        top, left = rng.integers(0, features["image"].shape[0] - self.size, size=2)
        image = features["image"][top : top + self.size, left : left + self.size]
        return {**features, "image": image}


def test_random_transform_class() -> None:
    images = fl.from_range(4).map(lambda i: {"image": np.eye(8), "label": np.array(i)})
    batch = images.random_map(RandomCrop(4), seed=1).batch(4).collect()[0]
    assert batch["image"].shape == (4, 4, 4)
    assert batch["label"].tolist() == [0, 1, 2, 3]


def test_random_noise_is_the_same_in_each_run() -> None:
    def jitter(value: float, rng: np.random.Generator) -> float:
        return value + rng.uniform(-0.1, 0.1)

    noisy = fl.from_items([1.0, 2.0, 3.0]).random_map(jitter, seed=7)
    assert noisy.collect() == noisy.collect()
    assert noisy.batch(3).collect()[0].dtype == np.float64


def test_keep_even_rows_then_batch() -> None:
    even = fl.from_range(10).filter(lambda x: x % 2 == 0)
    assert [batch.tolist() for batch in even.batch(2)] == [[0, 2], [4, 6], [8]]


def test_filter_on_a_field_of_a_dict() -> None:
    rows: list[dict[str, Any]] = [{"text": "a b c", "length": 3}, {"text": "a", "length": 1}]
    long = fl.from_items(rows).filter(lambda row: row["length"] > 1)
    assert [row["text"] for row in long] == ["a b c"]


def test_filter_on_a_field_that_is_not_annotated() -> None:
    rows = fl.from_range(6).map(lambda i: {"id": i, "score": i / 5})
    assert rows.filter(lambda row: row["score"] >= 0.6).map(lambda row: row["id"]).collect() == [
        3,
        4,
        5,
    ]


def test_map_with_index() -> None:
    texts = fl.from_items(["a", "b", "c"])
    tagged = texts.enumerate().starmap(lambda index, text: f"{index}:{text}")
    assert tagged.collect() == ["0:a", "1:b", "2:c"]


def test_index_as_a_field() -> None:
    def add_index(pair: tuple[int, dict[str, Any]]) -> dict[str, Any]:
        index, features = pair
        return {**features, "index": index}

    batch = rows_of(Squares()).enumerate().map(add_index).batch(8).collect()[0]
    assert batch["index"].tolist() == [*range(8)]
    assert batch["y"].tolist()[-1] == 49


def test_mixture_with_weights() -> None:
    books = fl.from_items(["book"] * 30).repeat()
    code = fl.from_items(["code"] * 30).repeat()
    mixture = books.choose(code, weights=[0.7, 0.3], seed=1).take(1000)
    assert 600 < mixture.collect().count("book") < 800


def test_concatenate_a_list_of_datasets() -> None:
    parts = [fl.from_range(n).map(lambda i: np.array([i, i])) for n in (1, 2, 3)]
    whole = parts[0].concat(*parts[1:])
    assert whole.batch(6).collect()[0][:, 0].tolist() == [0, 0, 1, 0, 1, 2]


def test_repeat_with_another_order_in_each_epoch() -> None:
    twice = fl.from_range(5).shuffle(seed=3).repeat(2).collect()
    assert sorted(twice[:5]) == sorted(twice[5:])


def test_slice_for_one_host_of_three() -> None:
    host = fl.from_range(10).shard(3, 1).map(lambda i: (i, str(i)))
    assert host.collect() == [(1, "1"), (4, "4"), (7, "7")]


def test_checkpoint_in_a_file_and_resume(tmp_path: Path) -> None:
    dataset = rows_of(Squares()).shuffle(seed=5).batch(2)
    run = iter(dataset)
    first = next(run)
    (tmp_path / "state.json").write_text(json.dumps(run.state_dict()))
    state = json.loads((tmp_path / "state.json").read_text())
    rest = [batch["y"].tolist() for batch in dataset.resume(state)]
    assert len(rest) == 3
    assert first["y"].tolist() not in rest


def test_epochs_go_on_from_a_state() -> None:
    dataset = fl.from_range(6).shuffle(seed=0).batch(2)
    whole = [batch.tolist() for epoch in dataset.epochs(2) for batch in epoch]
    epoch = next(dataset.epochs(2))
    seen = [next(epoch).tolist()]
    state = epoch.state_dict()
    for epoch in dataset.epochs(2, resume=state):
        seen.extend(batch.tolist() for batch in epoch)
    assert seen == whole


@dataclasses.dataclass(frozen=True)
class Features:
    tokens: NDArray[np.int64]
    weight: float
    source: str


def test_dataclass_elements() -> None:
    def tokenize(text: str) -> Features:
        return Features(np.array([ord(c) for c in text]), 1.0 / len(text), text)

    tokens, weights, sources = fl.from_items(["abc", "xyz"]).map(tokenize).batch(2).collect()[0]
    assert tokens.shape == (2, 3)
    assert weights.dtype == np.float64
    assert sources == ["abc", "xyz"]


def test_nested_features() -> None:
    def nested(i: int) -> dict[str, Any]:
        return {"inputs": {"image": np.zeros((2, 2)), "size": (i, i)}, "label": i}

    batch = fl.from_range(3).map(nested).batch(3).collect()[0]
    assert batch["inputs"]["image"].shape == (3, 2, 2)
    assert batch["inputs"]["size"][0].tolist() == [0, 1, 2]


def pack(rows: Sequence[list[int]], length: int) -> NDArray[np.int64]:
    tokens = [token for row in rows for token in row]
    return np.array(tokens[:length] + [0] * (length - len(tokens)))


def test_pack_documents_to_one_length() -> None:
    documents = fl.from_items([[1, 2], [3], [4, 5, 6], [7]])
    packed = documents.batch(2, collate=lambda rows: pack(rows, 4)).batch(2)
    assert packed.collect()[0].tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]


def test_flat_map_fans_out() -> None:
    def views(pair: tuple[int, np.ndarray]) -> list[tuple[int, np.ndarray]]:
        key, image = pair
        return [(key, image), (key, image[::-1]), (key, image[:, ::-1])]

    images = fl.from_range(2).map(lambda i: (i, np.eye(3)))
    keys, views_of_all = images.flat_map(views).batch(6).collect()[0]
    assert keys.tolist() == [0, 0, 0, 1, 1, 1]
    assert views_of_all.shape == (6, 3, 3)


def test_zip_two_datasets_of_dicts() -> None:
    images = fl.from_range(4).map(lambda i: {"image": np.full((2, 2), i)})
    captions = fl.from_items([{"caption": f"number {i}"} for i in range(4)])
    batch = images.zip(captions).batch(2).collect()[0]
    assert batch["image"].shape == (2, 2, 2)
    assert batch["caption"] == ["number 0", "number 1"]


def test_window_shuffle_of_a_stream() -> None:
    stream = fl.from_iterable(lambda: iter(range(50))).shuffle(10, seed=1)
    assert sorted(stream) == [*range(50)]


def test_two_processes_give_the_same() -> None:
    dataset = fl.from_range(16).map(lambda i: {"x": np.arange(i, i + 3), "i": i}).batch(4)
    here = [batch["i"].tolist() for batch in dataset]
    there = [batch["i"].tolist() for batch in dataset.prefetch(procs=2)]
    assert here == there


class Pipeline(Generic[T_co]):
    def __init__(self, source: RandomAccess[T_co], seed: int) -> None:
        self.source = source
        self.seed = seed

    def build(self) -> Flow[T_co, fl.Reordered]:
        return rows_of(self.source).shuffle(seed=self.seed)


def test_generic_pipeline() -> None:
    words: RandomAccess[str] = ["a", "b", "c", "d"]
    assert sorted(Pipeline(words, seed=1).build()) == ["a", "b", "c", "d"]

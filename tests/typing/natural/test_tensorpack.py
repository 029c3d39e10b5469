"""Programs of tensorpack users: tuples, components by number, DataFlows in classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow


class Digits:
    """A replacement of a DataFlow of images and labels."""

    def __init__(self, name: str, size: int = 8) -> None:
        self.name = name
        self.size = size

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        for i in range(self.size):
            yield np.full((28, 28), i, dtype=np.uint8), i % 10


def test_dataflow_of_a_class() -> None:
    train = fl.from_iterable(Digits("train")).batch(4)
    for images, labels in train:
        assert images.shape == (4, 28, 28)
        assert images[:, 0, 0].tolist() == labels.tolist()


def test_list_of_datapoints() -> None:
    datapoints: list[list[Any]] = [[np.zeros(4), 1], [np.ones(4), 2]]
    flow = fl.from_items(datapoints).map(tuple).batch(2)
    arrays, labels = next(iter(flow))
    assert arrays.shape == (2, 4)
    assert labels.tolist() == [1, 2]


def test_map_data_over_the_whole_datapoint() -> None:
    flow = fl.from_iterable(Digits("train")).map(lambda dp: (dp[0] * 2.0, dp[1]))
    images, labels = next(iter(flow.batch(8)))
    assert images.dtype == np.float64
    assert labels.sum() == 28


def test_map_data_that_leaves_out() -> None:
    def keep_bright(dp: tuple[np.ndarray, int]) -> tuple[np.ndarray, int] | None:
        image, label = dp
        return (image, label) if image.mean() > 3 else None

    flow = fl.from_iterable(Digits("train")).filter_map(keep_bright).batch(2)
    assert [labels.tolist() for _, labels in flow] == [[4, 5], [6, 7]]


def test_map_data_component_image() -> None:
    flow = fl.from_iterable(Digits("train"))
    scaled = flow.map_component(lambda image: image.astype("float32") / 255.0, 0)
    images, _ = next(iter(scaled.batch(8)))
    assert images.max() < 0.1


def test_map_data_component_label() -> None:
    flow = fl.from_iterable(Digits("train")).map_component(lambda label: label == 3, index=1)
    _, is_three = next(iter(flow.batch(8)))
    assert is_three.tolist() == [i == 3 for i in range(8)]


def test_map_data_component_text_to_number() -> None:
    flow = fl.from_items([("cat", 0.5), ("dog", 1.5)]).map_component(len)
    lengths, weights = flow.batch(2).collect()[0]
    assert lengths.tolist() == [3, 3]
    assert weights.sum() == 2.0


def test_select_components() -> None:
    rows = fl.from_items([(np.zeros(2), i, f"{i}.png", 0.5) for i in range(3)])
    labels, images = rows.select(fl.c1, fl.c0).batch(3).collect()[0]
    assert labels.tolist() == [0, 1, 2]
    assert images.shape == (3, 2)


def test_select_the_third_and_fourth() -> None:
    rows = fl.from_items([(np.zeros(2), i, f"{i}.png", 0.5) for i in range(3)])
    names, weights = rows.select(fl.c2, fl.c3).batch(3).collect()[0]
    assert names == ["0.png", "1.png", "2.png"]
    assert weights.dtype == np.float64


def test_one_component_alone() -> None:
    labels = fl.from_iterable(Digits("train")).map(fl.c1)
    assert sum(labels) == 28


def test_batch_by_shape_of_the_image() -> None:
    rows = fl.from_items([(np.zeros((h, 4)), h) for h in (2, 3, 2, 3)])
    for images, heights in rows.batch_by_shape(2, fl.c0):
        assert images.shape[1] == heights[0] == heights[1]


def test_locally_shuffle() -> None:
    flow = fl.from_iterable(Digits("train")).shuffle(4, seed=1)
    assert sorted(label for _, label in flow) == [*range(8)]


def test_fixed_size_epochs() -> None:
    flow = fl.from_iterable(Digits("train")).fixed_size(3)
    epochs = [[label for _, label in epoch] for epoch in flow.epochs(2)]
    assert epochs == [[0, 1, 2], [3, 4, 5]]


def test_repeated_data_and_datapoints() -> None:
    flow = fl.from_items([("a", 1), ("b", 2)])
    assert [name for name, _ in flow.repeat_each(2)] == ["a", "a", "b", "b"]
    assert [name for name, _ in flow.repeat(2)] == ["a", "b", "a", "b"]


def test_concatenated_data_of_train_and_extra() -> None:
    both = fl.from_iterable(Digits("train")).concat(fl.from_iterable(Digits("extra", 4)))
    images, labels = both.batch(12).collect()[0]
    assert images.shape == (12, 28, 28)
    assert labels.sum() == 34


def test_random_mix_of_two() -> None:
    a = fl.from_items([(np.zeros(2), "a")] * 3)
    b = fl.from_items([(np.ones(2), "b")] * 3)
    mixed = a.mix(b, seed=3).map(lambda dp: dp[1])
    assert sorted(mixed) == ["a", "a", "a", "b", "b", "b"]


def test_random_choose_with_weights() -> None:
    a, b = fl.from_items(["a"]).repeat(), fl.from_items(["b"]).repeat()
    assert set(a.choose(b, weights=[0.9, 0.1], seed=0).take(100)) == {"a", "b"}


def test_join_images_with_boxes() -> None:
    images = fl.from_items([np.zeros((4, 4))] * 3)
    boxes = fl.from_items([(np.arange(4), "car")] * 3)
    joined = images.zip(boxes)
    for image, box, name in joined:
        assert image.shape == (4, 4)
        assert box[2] == 2
        assert name == "car"


def test_join_pairs_with_pairs() -> None:
    left = fl.from_items([(np.zeros(3), 1)] * 4)
    right = fl.from_items([(np.ones(2), 0.5)] * 4)
    a, label, b, weight = left.zip(right).batch(4).collect()[0]
    assert a.shape == (4, 3)
    assert label.dtype == np.int64
    assert b.shape == (4, 2)
    assert weight.mean() == 0.5


def test_fake_data() -> None:
    flow = fl.fake([(8, 8, 3), ()], size=6, dtype=["float32", "int64"], domain=[(0, 1), (0, 10)])
    batches = flow.batch(3).collect()
    images, labels = batches[0]
    assert images.shape == (3, 8, 8, 3)
    assert labels.max() < 10


def test_lmdb_of_jpegs(tmp_path: Path) -> None:
    encoded = [(bytes([i, i]), i) for i in range(4)]
    fl.from_items(encoded).write_lmdb(tmp_path / "train.lmdb")

    def decode(jpeg: bytes, label: int) -> tuple[NDArray[np.uint8], int]:
        return np.frombuffer(jpeg, dtype=np.uint8), label

    flow = fl.from_lmdb(tmp_path / "train.lmdb", tuple[bytes, int]).shuffle(seed=1)
    images, labels = flow.starmap(decode).batch(4).collect()[0]
    assert np.array_equal(images[:, 0], labels)


def test_augment_images() -> None:
    def flip(
        dp: tuple[NDArray[np.uint8], int], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint8], int]:
        return (dp[0][:, ::-1] if rng.random() < 0.5 else dp[0]), dp[1]

    rows = [(np.arange(4, dtype=np.uint8).reshape(2, 2), i) for i in range(10)]
    images, labels = fl.from_items(rows).random_map(flip, seed=1).batch(10).collect()[0]
    assert set(images[:, 0, 0].tolist()) == {0, 1}
    assert labels.shape == (10,)


def get_data(name: str, batch_size: int) -> Flow[tuple[Any, ...]]:
    is_train = name == "train"
    flow = fl.from_iterable(Digits(name))
    if is_train:
        return flow.shuffle(8).batch(batch_size).repeat().prefetch(threads=2)
    return flow.batch(batch_size)


def test_get_data_for_train_and_test() -> None:
    for name in ("train", "test"):
        images, labels = next(iter(get_data(name, 4)))
        assert images.shape == (4, 28, 28)
        assert labels.shape == (4,)


def test_multi_process_map() -> None:
    def heavy(i: int) -> tuple[np.ndarray, int, str]:
        return np.full((2, 2), i), i, f"{i}"

    flow = fl.from_range(8).map(heavy).prefetch(procs=2).batch(4)
    names = [name for _, _, batch in flow for name in batch]
    assert names == [str(i) for i in range(8)]

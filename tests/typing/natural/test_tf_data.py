"""Programs of tf.data users: slices, files of lines, windows, padding and balance."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow


def test_slices_of_an_array() -> None:
    numbers = fl.from_items(np.array([8, 3, 0, 8, 2, 1]))
    assert [int(number) for number in numbers] == [8, 3, 0, 8, 2, 1]


def test_images_and_labels_from_two_arrays() -> None:
    images = np.zeros((10, 28, 28), dtype=np.uint8)
    labels = np.arange(10)
    train = fl.from_items((images, labels)).shuffle(seed=1).batch(4)
    for image_batch, label_batch in train:
        assert image_batch.shape[1:] == (28, 28)
        assert len(label_batch) == len(image_batch)


def normalize(image: NDArray[np.uint8], label: int) -> tuple[NDArray[np.float32], int]:
    return image.astype(np.float32) / np.float32(255), label


def test_normalize_the_pixels_and_keep_the_label() -> None:
    rows = [(np.full((4, 4), 255, dtype=np.uint8), label) for label in range(6)]
    train = fl.from_items(rows).starmap(normalize).batch(3)
    images, labels = next(iter(train))
    assert images.max() == 1.0
    assert labels.tolist() == [0, 1, 2]


def test_columns_of_a_table() -> None:
    table = {"age": np.array([22.0, 38.0, 26.0]), "survived": np.array([0, 1, 1])}
    rows = fl.from_items(table)
    first = next(iter(rows))
    assert first["age"] == 22.0
    batch = next(iter(rows.batch(3)))
    assert batch["survived"].tolist() == [0, 1, 1]


def test_features_and_label_of_a_row() -> None:
    def split_label(row: dict[str, Any]) -> tuple[dict[str, Any], int]:
        features = dict(row)
        label = features.pop("label")
        return features, label

    rows = [{"size": 1.5 * i, "rooms": i, "label": i % 2} for i in range(4)]
    for features, labels in fl.from_items(rows).map(split_label).batch(2):
        assert features["size"].shape == (2,)
        assert labels.tolist() == [0, 1]


def count_to(stop: int) -> Iterator[int]:
    yield from range(stop)


def test_numbers_from_a_generator() -> None:
    counter = fl.from_iterable(lambda: count_to(25))
    batches = counter.repeat().batch(10).take(10).collect()
    assert batches[1].tolist() == [*range(10, 20)]
    assert len(batches) == 10


def series_of_random_length() -> Iterator[tuple[int, NDArray[np.float64]]]:
    rng = np.random.default_rng(0)
    for i in range(8):
        yield i, rng.normal(size=int(rng.integers(1, 10)))


def test_pad_series_from_a_generator() -> None:
    series = fl.from_iterable(series_of_random_length).shuffle(20)
    ids, values = next(iter(series.padded_batch(8)))
    assert sorted(ids.tolist()) == [*range(8)]
    assert values.ndim == 2


def read_lines(path: str) -> Iterator[str]:
    with open(path) as file:
        for line in file:
            yield line.strip()


def test_lines_of_several_text_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(f"{name} a\n{name} b\n")
    lines = fl.from_files(f"{tmp_path}/*.txt").flat_map(read_lines)
    assert lines.collect() == ["one a", "one b", "two a", "two b"]


def test_lines_without_header_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "titanic.csv"
    file.write_text("survived,age\n1,22\n# unknown\n0,38\n")
    lines = fl.from_iterable(lambda: file.read_text().splitlines())
    survivors = lines.skip(1).filter(lambda line: not line.startswith("#"))
    assert survivors.collect() == ["1,22", "0,38"]


def test_decode_csv_lines_into_columns() -> None:
    lines = ["1,22.0,third", "0,38.0,first", "1,26.0,third"]

    def parse(line: str) -> dict[str, object]:
        survived, age, deck = line.split(",")
        return {"survived": int(survived), "age": float(age), "class": deck}

    batch = fl.from_items(lines).map(parse).batch(3).collect()[0]
    assert batch["class"] == ["third", "first", "third"]
    assert batch["age"].mean() > 28


def test_csv_file_with_a_reader(tmp_path: Path) -> None:
    file = tmp_path / "iris.csv"
    file.write_text("length,width,species\n5.1,3.5,0\n6.2,2.9,1\n")

    def rows() -> Iterator[dict[str, str]]:
        with file.open(newline="") as lines:
            yield from csv.DictReader(lines)

    flowers = fl.from_iterable(rows).map(
        lambda row: (np.array([float(row["length"]), float(row["width"])]), int(row["species"]))
    )
    features, species = flowers.batch(2).collect()[0]
    assert features.shape == (2, 2)
    assert species.dtype == np.int64


def label_of(path: str) -> str:
    return Path(path).parent.name


def test_files_labelled_by_their_folder(tmp_path: Path) -> None:
    for kind in ("daisy", "rose"):
        (tmp_path / kind).mkdir()
        for i in range(3):
            np.save(tmp_path / kind / f"{i}.npy", np.full((8, 8, 3), i, dtype=np.uint8))
    images = fl.from_files(f"{tmp_path}/*/*.npy").map(lambda path: (np.load(path), label_of(path)))
    pictures, labels = images.batch(6).collect()[0]
    assert pictures.shape == (6, 8, 8, 3)
    assert labels == ["daisy"] * 3 + ["rose"] * 3


def test_class_numbers_from_names() -> None:
    names = ["daisy", "rose", "tulip"]
    paths = ["daisy/1.png", "tulip/2.png", "rose/3.png"]
    numbers = fl.from_items(paths).map(lambda path: names.index(path.split("/")[0])).batch(3)
    assert numbers.collect()[0].tolist() == [0, 2, 1]


def test_repeat_before_batch_runs_over_the_end() -> None:
    across = fl.from_range(3).repeat(2).batch(2).collect()
    within = fl.from_range(3).batch(2).repeat(2).collect()
    assert [len(batch) for batch in across] == [2, 2, 2]
    assert [len(batch) for batch in within] == [2, 1, 2, 1]


def test_shuffle_batch_repeat_prefetch() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    labels = np.arange(20) % 10
    train = (
        fl.from_items([*zip(images, labels, strict=True)])
        .cache()
        .shuffle(seed=0)
        .batch(8, drop_remainder=True)
        .repeat()
        .prefetch(threads=1)
    )
    for step, (image, label) in enumerate(train):
        assert image.shape == (8, 8, 8)
        assert label.dtype == labels.dtype
        if step == 5:
            break


def rotate(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.rot90(image, k=int(rng.integers(4)))


def test_random_rotation() -> None:
    images = [np.arange(16).reshape(4, 4) for _ in range(6)]
    rotated = fl.from_items(images).random_map(rotate, seed=3).batch(6).collect()[0]
    assert rotated.shape == (6, 4, 4)
    assert sorted(rotated[0].ravel().tolist()) == [*range(16)]


def test_augment_only_the_image_of_a_pair() -> None:
    pairs = fl.from_items([(np.ones((4, 4), dtype=np.float32), i) for i in range(4)])
    noisy = pairs.random_map(
        lambda pair, rng: (pair[0] + rng.normal(size=(4, 4)).astype(np.float32), pair[1])
    )
    images, labels = noisy.batch(4).collect()[0]
    assert images.dtype == np.float32
    assert labels.tolist() == [0, 1, 2, 3]


def test_windows_of_features_and_the_next_value() -> None:
    series = fl.from_range(20)
    pairs = series.window(6, stride=5).map(lambda window: (np.array(window[:5]), window[5]))
    features, labels = pairs.batch(2).collect()[0]
    assert features.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert labels.tolist() == [5, 10]


def test_batches_shifted_by_one_as_labels() -> None:
    def shift(batch: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return batch[:-1], batch[1:]

    pairs = fl.from_range(100).batch(10, drop_remainder=True).map(shift)
    for inputs, targets in pairs.take(3):
        assert np.array_equal(inputs + 1, targets)


def test_window_of_pairs() -> None:
    steps = fl.from_items([(0.5 * i, i) for i in range(6)])
    windows = steps.window(3).map(fl.stack)
    values, times = next(iter(windows))
    assert values.tolist() == [0.0, 0.5, 1.0]
    assert times.tolist() == [0, 1, 2]


def test_balance_two_classes_by_sampling() -> None:
    transactions = fl.from_items([(np.zeros(3), 0)] * 50 + [(np.ones(3), 1)] * 5)
    ordinary = transactions.filter(lambda row: row[1] == 0).repeat()
    fraud = transactions.filter(lambda row: row[1] == 1).repeat()
    balanced = ordinary.choose(fraud, weights=[0.5, 0.5], seed=2).take(200)
    labels = [label for _, label in balanced]
    assert 60 < sum(labels) < 140


def test_zip_features_with_labels() -> None:
    features = fl.from_items(np.random.default_rng(0).normal(size=(6, 4)))
    labels = fl.from_items([0, 1, 0, 1, 0, 1])
    x, y = features.zip(labels).shuffle(seed=4).batch(3).collect()[0]
    assert x.shape == (3, 4)
    assert set(y.tolist()) <= {0, 1}


def test_zip_three_ranges() -> None:
    a = fl.from_range(3)
    b = fl.from_range(3).map(lambda i: i * 10)
    c = fl.from_items(["x", "y", "z"])
    assert a.zip(b).zip(c).collect() == [(0, 0, "x"), (1, 10, "y"), (2, 20, "z")]


def test_enumerate_the_rows() -> None:
    letters = fl.from_items(["a", "b", "c"]).enumerate()
    assert dict(letters) == {0: "a", 1: "b", 2: "c"}


def test_take_and_skip_make_a_validation_set() -> None:
    data = fl.from_items([(np.array([i, i]), float(i)) for i in range(10)])
    validation, train = data.take(3).batch(3), data.skip(3).batch(7)
    assert [targets.tolist() for _, targets in validation] == [[0.0, 1.0, 2.0]]
    assert train.collect()[0][0].shape == (7, 2)


def test_pad_tokens_with_zero_and_keep_labels() -> None:
    sentences = [([3, 1, 4], 1), ([1, 5], 0), ([9], 1)]
    tokens, labels = fl.from_items(sentences).padded_batch(3).collect()[0]
    assert tokens.tolist() == [[3, 1, 4], [1, 5, 0], [9, 0, 0]]
    assert labels.tolist() == [1, 0, 1]


def test_pad_both_components_with_their_own_value() -> None:
    rows = fl.from_range(4).map(lambda i: (np.full(i, 1), np.full(i + 1, 2)))
    left, right = rows.padded_batch(4, padding=(-1, 100)).collect()[0]
    assert left.shape == (4, 3)
    assert right[0].tolist() == [2, 100, 100, 100]


def test_bucket_by_length() -> None:
    words = fl.from_items([np.arange(n) for n in (2, 3, 2, 3, 4)])
    buckets = words.batch_by_shape(2, lambda word: word).collect()
    assert sorted(bucket.shape for bucket in buckets) == [(1, 4), (2, 2), (2, 3)]


def test_interleave_the_records_of_shards() -> None:
    shards = [fl.from_items([f"{name}{i}" for i in range(2)]) for name in "abc"]
    first, *others = shards
    assert first.interleave(*others).collect() == ["a0", "b0", "c0", "a1", "b1", "c1"]


class Example(TypedDict):
    image: NDArray[np.uint8]
    height: int
    name: str


def test_examples_with_a_schema() -> None:
    def example(i: int) -> Example:
        return {"image": np.zeros((2, 2), dtype=np.uint8), "height": i, "name": f"{i}.png"}

    batch = fl.from_range(4).map(example).batch(4).collect()[0]
    assert batch["image"].shape == (4, 2, 2)
    assert batch["height"].tolist() == [0, 1, 2, 3]
    assert batch["name"][0] == "0.png"


def test_records_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "train.lmdb"
    fl.from_range(5).map(lambda i: (np.full(3, i, dtype=np.uint8), i)).write_lmdb(path)
    records = fl.from_lmdb(path, tuple[NDArray[np.uint8], int])
    images, labels = records.shuffle(seed=0).batch(5).collect()[0]
    assert images[:, 0].tolist() == labels.tolist()


def scale_all(data: Flow[NDArray[np.float64], fl.Finite], factor: float) -> list[float]:
    return [float(np.mean(row) * factor) for row in data]


def test_pass_a_dataset_to_a_function() -> None:
    data = fl.from_range(3).map(lambda i: np.full(2, float(i)))
    assert scale_all(data, 2.0) == [0.0, 2.0, 4.0]


def test_sum_of_all_elements() -> None:
    assert sum(fl.from_range(10).filter(lambda i: i % 2 == 1).map(lambda i: i**2)) == 165


def test_sparse_tokens_as_ids() -> None:
    vocabulary = {"the": 1, "cat": 2, "sat": 3}
    sentences = fl.from_items(["the cat", "the cat sat"])
    ids = sentences.map(lambda line: [vocabulary[word] for word in line.split()])
    assert ids.padded_batch(2).collect()[0].tolist() == [[1, 2, 0], [1, 2, 3]]

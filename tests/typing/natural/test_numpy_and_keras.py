"""Programs of NumPy and Keras users: whole arrays, sequences of batches, fit and evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow

Images: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.int64]


def load_data() -> tuple[tuple[Images, Labels], tuple[Images, Labels]]:
    x = np.arange(12 * 4, dtype=np.uint8).reshape(12, 2, 2)
    y = np.arange(12) % 3
    return (x[:8], y[:8]), (x[8:], y[8:])


def test_load_data_and_batch() -> None:
    (x_train, y_train), (x_test, y_test) = load_data()
    train = fl.from_items((x_train, y_train)).shuffle(seed=0).batch(4)
    test = fl.from_items((x_test, y_test)).batch(4)
    assert [x.shape for x, _ in train] == [(4, 2, 2), (4, 2, 2)]
    assert [y.tolist() for _, y in test] == [[2, 0, 1, 2]]


def test_rows_zipped_by_python() -> None:
    (x, y), _ = load_data()
    for images, labels in fl.from_items(list(zip(x, y, strict=True))).batch(4):
        assert images.shape == (4, 2, 2)
        assert labels.dtype == y.dtype


def test_scale_every_row_of_an_array() -> None:
    (x, _), _ = load_data()

    def scale(image: Images) -> NDArray[np.float32]:
        return image.astype(np.float32)

    scaled = fl.from_items(x).map(scale).batch(8).collect()[0]
    assert scaled.dtype == np.float32


def test_rows_by_index_of_arrays() -> None:
    (x, y), _ = load_data()
    pairs = fl.from_range(len(x)).map(lambda i: (x[i], y[i]))
    images, labels = pairs.batch(8).collect()[0]
    assert np.array_equal(images, x)
    assert np.array_equal(labels, y)


def test_one_hot_labels() -> None:
    (x, y), _ = load_data()
    pairs = fl.from_range(8).map(lambda i: (x[i] / 255, np.eye(3)[y[i]]))
    images, labels = pairs.batch(8).collect()[0]
    assert images.max() < 1
    assert labels.sum(axis=0).tolist() == [3, 3, 2]


def test_sample_weights_as_a_third_component() -> None:
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    (x, y), _ = load_data()
    rows = fl.from_items([(image, int(label)) for image, label in zip(x, y, strict=True)])
    weighted = rows.map(lambda row: (row[0], row[1], weights[row[1]]))
    images, labels, w = weighted.batch(3).collect()[0]
    assert images.shape == (3, 2, 2)
    assert labels.tolist() == [0, 1, 2]
    assert w.tolist() == [1.0, 2.0, 0.5]


def test_class_weights_from_counts() -> None:
    labels = fl.from_items([0, 0, 0, 1])
    counts = np.bincount(labels.collect())
    weights: npt.NDArray[np.float64] = counts.sum() / (len(counts) * counts)
    weighted = labels.map(lambda label: (label, float(weights[label])))
    assert weighted.batch(4).collect()[0][1].tolist() == [2 / 3, 2 / 3, 2 / 3, 2.0]


def test_several_inputs_and_outputs_by_name() -> None:
    def row(i: int) -> tuple[dict[str, Any], dict[str, Any]]:
        inputs = {"title": np.full(5, i), "body": np.full(9, i), "urgent": i % 2 == 0}
        return inputs, {"priority": i / 4, "department": i}

    inputs, outputs = fl.from_range(4).map(row).batch(4).collect()[0]
    assert inputs["title"].shape == (4, 5)
    assert inputs["urgent"].dtype == np.bool_
    assert outputs["priority"].tolist() == [0.0, 0.25, 0.5, 0.75]


def test_nested_tuple_of_inputs_and_a_target() -> None:
    rows = fl.from_range(4).map(lambda i: ((np.full(2, i), np.full(3, i)), i % 2))
    for (left, right), target in rows.batch(2):
        assert left.shape == (2, 2)
        assert right.shape == (2, 3)
        assert target.shape == (2,)


class PaddedSequences:
    """A replacement of a Sequence: batches by number."""

    def __init__(self, rows: list[list[int]], batch_size: int) -> None:
        self.rows = rows
        self.batch_size = batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.batch_size)

    def __getitem__(self, index: int) -> np.ndarray:
        rows = self.rows[index * self.batch_size : (index + 1) * self.batch_size]
        return np.array([row + [0] * (4 - len(row)) for row in rows])


def test_sequence_of_batches() -> None:
    sequence = PaddedSequences([[1], [2, 2], [3, 3, 3]], batch_size=2)
    batches = fl.from_range(len(sequence)).map(lambda i: sequence[i])
    assert [batch.shape for batch in batches] == [(2, 4), (1, 4)]
    assert batches.unbatch().batch(3).collect()[0].sum(axis=1).tolist() == [1, 4, 9]


def test_pad_sequences_with_a_value() -> None:
    sequences = fl.from_items([[1.5], [2.0, 3.0]])
    padded = sequences.padded_batch(2, padding=-1.0).collect()[0]
    assert padded.tolist() == [[1.5, -1.0], [2.0, 3.0]]


class Model:
    def __init__(self) -> None:
        self.seen = 0

    def train_on_batch(self, x: NDArray[np.float32], y: Labels) -> float:
        self.seen += len(x)
        return float(np.mean(x)) + float(np.mean(y))

    def predict(self, x: NDArray[np.float32]) -> Labels:
        return x[:, 0].astype(np.int64)


def to_row(i: int) -> tuple[NDArray[np.float32], int]:
    return np.array([i, 0], dtype=np.float32), i


def test_fit_loop() -> None:
    model = Model()
    train = fl.from_range(8).map(to_row).shuffle(seed=1).batch(4)
    losses = [model.train_on_batch(x, y) for epoch in train.epochs(2) for x, y in epoch]
    assert len(losses) == 4
    assert model.seen == 16


def evaluate(
    predict: Callable[[NDArray[np.float32]], Labels],
    data: Flow[tuple[NDArray[np.float32], Labels], fl.Reordered],
) -> float:
    """Each row counts once."""
    right = total = 0
    for x, y in data:
        right += int((predict(x) == y).sum())
        total += len(y)
    return right / total


def test_evaluate_on_each_row_once() -> None:
    test = fl.from_range(7).map(to_row).batch(3)
    assert evaluate(Model().predict, test) == 1.0


def test_steps_per_epoch_of_an_endless_flow() -> None:
    model = Model()
    steps_per_epoch = 5
    train = iter(fl.from_range(3).map(to_row).repeat().batch(2))
    for _ in range(steps_per_epoch):
        x, y = next(train)
        model.train_on_batch(x, y)
    assert model.seen == 10


def mean_and_std(batches: Iterable[NDArray[np.float64]]) -> tuple[float, float]:
    values = np.concatenate([batch.ravel() for batch in batches])
    return float(values.mean()), float(values.std())


def test_statistics_of_a_column() -> None:
    ages = fl.from_items([22.0, 38.0, 26.0, 34.0])
    mean, std = mean_and_std(ages.batch(2))
    normal = ages.map(lambda age: (age - mean) / std).batch(4).collect()[0]
    assert abs(normal.mean()) < 1e-9


def test_timeseries_from_an_array() -> None:
    data = np.arange(20, dtype=np.float32)
    windows = fl.from_items(data).window(4, stride=2).map(lambda w: (np.stack(w[:-1]), w[-1]))
    x, y = windows.batch(3).collect()[0]
    assert x.shape == (3, 3)
    assert y.tolist() == [3.0, 5.0, 7.0]


def test_timeseries_with_targets_at_an_offset() -> None:
    series = np.sin(np.arange(30))
    starts = fl.from_range(20)
    rows = starts.map(lambda i: (series[i : i + 5], series[i + 5 + 3]))
    x, y = rows.batch(20).collect()[0]
    assert x.shape == (20, 5)
    assert y[0] == series[8]


def test_mixup_of_two_orders() -> None:
    rows = [(np.full(2, float(i)), np.eye(4)[i]) for i in range(4)]
    straight, backward = fl.from_items(rows), fl.from_items(rows[::-1])

    def mix(
        x1: np.ndarray, y1: np.ndarray, x2: np.ndarray, y2: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return 0.5 * x1 + 0.5 * x2, 0.5 * y1 + 0.5 * y2

    x, y = straight.zip(backward).starmap(mix).batch(4).collect()[0]
    assert x.tolist() == [[1.5, 1.5]] * 4
    assert y.sum() == 4


def test_k_fold_with_shards() -> None:
    (x, y), _ = load_data()
    rows = fl.from_items([*zip(x, y, strict=True)])
    for fold in range(4):
        held_out = rows.shard(4, fold)
        others = [rows.shard(4, k) for k in range(4) if k != fold]
        train = others[0].concat(*others[1:]).shuffle(seed=fold).batch(6)
        assert len(train.collect()) == 1
        assert held_out.size() == 2


def test_complex_spectra() -> None:
    signals = fl.from_items([(np.ones(8), 2.0 + 1.0j), (np.zeros(8), 0j)])
    spectra = signals.map(lambda row: (np.fft.rfft(row[0]), row[1]))
    spectrum, gain = spectra.batch(2).collect()[0]
    assert spectrum.shape == (2, 5)
    assert gain.dtype == np.complex128


def test_flattened_images_through_np_functions() -> None:
    (x, _), _ = load_data()
    flat = fl.from_items(x).map(np.ravel).batch(8).collect()[0]
    assert flat.shape == (8, 4)


def test_argmax_of_scores() -> None:
    scores = fl.from_items(np.eye(3)).map(np.argmax).batch(3)
    assert scores.collect()[0].tolist() == [0, 1, 2]

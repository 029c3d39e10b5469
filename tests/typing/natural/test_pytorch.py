"""Programs of PyTorch users: datasets with items, collate functions, samplers and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow


class FaceLandmarks:
    """A dataset: a length, and items."""

    def __init__(self, size: int, transform: Callable[[np.ndarray], np.ndarray] | None = None):
        self.size = size
        self.transform = transform

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        image = np.full((3, 8, 8), index, dtype=np.float32)
        if self.transform is not None:
            image = self.transform(image)
        return image, index % 2


def test_dataset_with_items() -> None:
    dataset = FaceLandmarks(10)
    loader = fl.from_range(len(dataset)).map(dataset.__getitem__).shuffle(seed=0).batch(4)
    for images, labels in loader:
        assert images.shape[1:] == (3, 8, 8)
        assert labels.ndim == 1


def test_dataset_by_index_in_a_lambda() -> None:
    dataset = FaceLandmarks(6, transform=lambda image: image / 255)
    loader = fl.from_range(len(dataset)).map(lambda i: dataset[i]).batch(3)
    images, labels = next(iter(loader))
    assert images.max() < 1
    assert labels.tolist() == [0, 1, 0]


class Rescale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return image * self.factor


class Compose:
    def __init__(self, transforms: Sequence[Callable[[np.ndarray], np.ndarray]]) -> None:
        self.transforms = transforms

    def __call__(self, image: np.ndarray) -> np.ndarray:
        for transform in self.transforms:
            image = transform(image)
        return image


def test_composed_transforms_on_the_first_component() -> None:
    transform = Compose([Rescale(2.0), lambda image: image.transpose(1, 2, 0), Rescale(0.5)])
    pairs = fl.from_range(4).map(FaceLandmarks(4).__getitem__)
    images, labels = pairs.map_component(transform).batch(4).collect()[0]
    assert images.shape == (4, 8, 8, 3)
    assert labels.tolist() == [0, 1, 0, 1]


def test_target_transform_on_the_second_component() -> None:
    pairs = fl.from_items([(np.ones(2), 3), (np.zeros(2), 5)])
    one_hot = pairs.map_component(lambda label: np.eye(10)[label], 1)
    _, targets = one_hot.batch(2).collect()[0]
    assert targets.argmax(axis=1).tolist() == [3, 5]


def test_items_of_dicts_with_keypoints() -> None:
    rng = np.random.default_rng(1)
    samples = [{"image": rng.random((3, 4, 4)), "landmarks": rng.random((5, 2))} for _ in range(6)]
    for batch in fl.from_items(samples).batch(2):
        assert batch["image"].shape == (2, 3, 4, 4)
        assert batch["landmarks"].shape == (2, 5, 2)


def test_items_of_dicts_with_a_number() -> None:
    samples = [{"image": np.zeros((3, 4, 4)), "label": i} for i in range(6)]
    for batch in fl.from_items(samples).shuffle(seed=5).batch(2):
        assert batch["image"].shape == (2, 3, 4, 4)
        assert batch["label"].shape == (2,)


def collate_words(rows: Sequence[tuple[str, int]]) -> tuple[list[str], NDArray[np.int64]]:
    words, labels = zip(*rows, strict=True)
    return list(words), np.array(labels)


def test_collate_function() -> None:
    rows = [("good", 1), ("bad", 0), ("fine", 1)]
    words, labels = fl.from_items(rows).batch(3, collate=collate_words).collect()[0]
    assert words == ["good", "bad", "fine"]
    assert labels.sum() == 2


def test_text_and_label_without_collate_function() -> None:
    rows = [("good", 1), ("bad", 0), ("fine", 1)]
    words, labels = fl.from_items(rows).batch(2).collect()[0]
    assert words == ["good", "bad"]
    assert labels.tolist() == [1, 0]


def test_collate_flat_tokens_with_offsets() -> None:
    def collate(rows: list[tuple[int, list[int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        labels = np.array([label for label, _ in rows])
        lengths = [0, *(len(tokens) for _, tokens in rows[:-1])]
        tokens = np.concatenate([np.array(tokens) for _, tokens in rows])
        return labels, tokens, np.cumsum(lengths)

    rows = fl.from_items([(0, [1, 2, 3]), (1, [4]), (1, [5, 6])])
    labels, tokens, offsets = rows.batch(3, collate=collate).collect()[0]
    assert tokens[offsets].tolist() == [1, 4, 5]
    assert labels.tolist() == [0, 1, 1]


def test_collate_lambda_that_keeps_the_list() -> None:
    boxes = fl.from_items([np.zeros((n, 4)) for n in (1, 3, 2)])
    batches = boxes.batch(2, collate=lambda rows: list(rows)).collect()
    assert [len(box) for box in batches[0]] == [1, 3]


def test_detection_images_with_ragged_boxes() -> None:
    def sample(i: int) -> tuple[np.ndarray, dict[str, Any]]:
        target = {"boxes": np.zeros((i + 1, 4)), "labels": [1] * (i + 1), "image_id": i}
        return np.zeros((3, 16, 16), dtype=np.float32), target

    loader = fl.from_range(4).map(sample).batch(2, collate=(np.stack, list))
    images, targets = next(iter(loader))
    assert images.shape == (2, 3, 16, 16)
    assert [len(target["boxes"]) for target in targets] == [1, 2]


def test_collate_with_fl_lists() -> None:
    rows = fl.from_items([(np.zeros((2, 3)), "a"), (np.zeros((4, 3)), "b")])
    clouds, names = rows.batch(2, collate=fl.lists).collect()[0]
    assert [cloud.shape[0] for cloud in clouds] == [2, 4]
    assert names == ["a", "b"]


def test_collate_a_dict_per_component() -> None:
    rows: list[dict[str, Any]] = [{"image": np.zeros((2, 2)), "caption": "a dog"} for _ in range(3)]
    loader = fl.from_items(rows).batch(3, collate={"image": np.stack, "caption": " / ".join})
    batch = next(iter(loader))
    assert batch["image"].shape == (3, 2, 2)
    assert batch["caption"] == "a dog / a dog / a dog"


class Numbers:
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))


def test_iterable_dataset() -> None:
    stream = fl.from_iterable(Numbers(3, 7))
    assert stream.batch(2).map(lambda batch: batch.tolist()).collect() == [[3, 4], [5, 6]]


def test_random_split() -> None:
    dataset = fl.from_range(30).map(FaceLandmarks(30).__getitem__)
    train, held_out = dataset.split(0.8, seed=1)
    assert len(train.collect()) == 24
    images, labels = held_out.batch(6).collect()[0]
    assert images.shape == (6, 3, 8, 8)
    assert labels.dtype == np.int64


def test_subset_by_indices() -> None:
    dataset = FaceLandmarks(10)
    subset = fl.from_items([7, 2, 5]).map(lambda i: dataset[i])
    assert [label for _, label in subset] == [1, 0, 1]


def test_concatenate_two_datasets() -> None:
    first = fl.from_range(3).map(FaceLandmarks(3).__getitem__)
    second = fl.from_range(2).map(FaceLandmarks(2).__getitem__)
    both = first.concat(second)
    assert both.size() == 5
    assert [len(labels) for _, labels in both.batch(4)] == [4, 1]


def test_shard_for_each_rank() -> None:
    rows = fl.from_items([(np.array([i]), i) for i in range(10)])
    ranks = [rows.shard(2, rank).shuffle(seed=9).batch(5) for rank in range(2)]
    seen = [label for rank in ranks for _, labels in rank for label in labels.tolist()]
    assert sorted(seen) == [*range(10)]


def test_epochs_with_an_order_each() -> None:
    loader = fl.from_range(8).shuffle(seed=2).batch(4)
    orders = [[int(i) for batch in epoch for i in batch] for epoch in loader.epochs(2)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_two_workers() -> None:
    dataset = FaceLandmarks(12)
    loader = fl.from_range(12).map(dataset.__getitem__).batch(4).prefetch(procs=2)
    assert [labels.sum() for _, labels in loader] == [2, 2, 2]


def test_weighted_sampling_of_rare_classes() -> None:
    common = fl.from_items([("common", 0)] * 90)
    rare = fl.from_items([("rare", 1)] * 10)
    sampled = common.repeat().choose(rare.repeat(), weights=[1, 1], seed=3).take(100)
    names, labels = sampled.batch(100).collect()[0]
    assert 30 < labels.sum() < 70
    assert names.count("rare") == labels.sum()


class Batch(NamedTuple):
    image: npt.NDArray[np.float32]
    label: npt.NDArray[np.int64]


def accuracy(images: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> float:
    return float(np.mean((images.mean(axis=(1, 2, 3)) > 2) == labels))


def test_named_batches() -> None:
    def load(i: int) -> tuple[npt.NDArray[np.float32], int]:
        return np.full((1, 2, 2), i, dtype=np.float32), int(i > 2)

    for batch in fl.from_range(6).map(load).batch(3).starmap(Batch):
        assert accuracy(batch.image, batch.label) == 1.0


class Sample(NamedTuple):
    image: np.ndarray
    label: int
    path: str


def test_samples_with_a_path() -> None:
    samples = [Sample(np.zeros((2, 2)), i, f"{i}.png") for i in range(4)]
    images, labels, paths = fl.from_items(samples).batch(4).collect()[0]
    assert images.shape == (4, 2, 2)
    assert labels.tolist() == [0, 1, 2, 3]
    assert paths[-1] == "3.png"


def test_tensor_dataset_of_three_arrays() -> None:
    x, mask, y = np.ones((6, 4)), np.ones((6, 4), dtype=bool), np.arange(6)
    for features, masks, targets in fl.from_items((x, mask, y)).batch(3):
        assert features[masks].sum() == 12
        assert targets.shape == (3,)


def test_image_folder(tmp_path: Path) -> None:
    for index, name in enumerate(["ants", "bees"]):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "0.npy", np.full((4, 4), index, dtype=np.uint8))
    classes = sorted(folder.name for folder in tmp_path.iterdir())
    class_to_index = {name: index for index, name in enumerate(classes)}

    def load(path: str) -> tuple[NDArray[np.uint8], int]:
        return np.load(path), class_to_index[Path(path).parent.name]

    images, labels = fl.from_files(f"{tmp_path}/*/*.npy").map(load).batch(2).collect()[0]
    assert images[:, 0, 0].tolist() == labels.tolist() == [0, 1]


def test_random_horizontal_flip_of_a_pair() -> None:
    def augment(sample: tuple[np.ndarray, int], rng: np.random.Generator) -> tuple[np.ndarray, int]:
        image, label = sample
        if rng.random() < 0.5:
            image = image[:, ::-1]
        return image, label

    rows = fl.from_items([(np.eye(2), i) for i in range(16)]).random_map(augment, seed=1)
    images, labels = rows.batch(16).collect()[0]
    assert 0 < images[:, 0, 1].sum() < 16
    assert labels.shape == (16,)


def test_text_classification_pipeline() -> None:
    vocabulary = {"<unk>": 0, "here": 1, "is": 2, "an": 3, "example": 4}

    def text_pipeline(text: str) -> list[int]:
        return [vocabulary.get(token, 0) for token in text.lower().split()]

    news = fl.from_items([(1, "Here is"), (2, "an example of news")])
    rows = news.map(lambda row: (row[0] - 1, text_pipeline(row[1])))
    labels, tokens = rows.padded_batch(2).collect()[0]
    assert labels.tolist() == [0, 1]
    assert tokens.tolist() == [[1, 2, 0, 0], [3, 4, 0, 0]]


def test_sequence_pairs_for_translation() -> None:
    pairs = [([1, 2], [3, 4, 5]), ([6], [7])]
    source, target = fl.from_items(pairs).padded_batch(2, padding=-100).collect()[0]
    assert source.tolist() == [[1, 2], [6, -100]]
    assert target.shape == (2, 3)


def fit(loader: Flow[tuple[NDArray[np.float32], NDArray[np.int64]]], steps: int) -> float:
    total = 0.0
    for step, (images, labels) in enumerate(loader):
        if step == steps:
            break
        total += float(images.sum() + labels.sum())
    return total


def test_loader_as_an_argument() -> None:
    rows = [(np.ones(4, dtype=np.float32), i) for i in range(4)]
    loader = fl.from_items(rows).shuffle(seed=0).batch(2).repeat()
    assert fit(loader, steps=2) == 22.0


def test_segmentation_image_and_mask() -> None:
    def crop(image: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return image[:2, :2], mask[:2, :2]

    pairs = fl.from_range(3).map(lambda i: (np.zeros((4, 4, 3)), np.full((4, 4), i % 2 == 0)))
    images, masks = pairs.starmap(crop).batch(3).collect()[0]
    assert images.shape == (3, 2, 2, 3)
    assert masks.dtype == np.bool_


def test_a_dataset_is_a_source_as_it_is() -> None:
    loader = fl.from_items(FaceLandmarks(6)).shuffle(seed=0).batch(2)
    image, label = loader.collect()[0]
    assert len(image) == len(label) == 2


def test_rows_that_do_not_stack_beside_rows_that_do() -> None:
    def read(i: int) -> tuple[str, str | None]:
        return f"row {i}", None

    def names(rows: list[tuple[str, str | None]]) -> list[str]:
        return [name for name, _ in rows]

    assert fl.from_range(2).map(read).batch(2, collate=names).collect() == [["row 0", "row 1"]]
    tokens = fl.from_items([("to", [1, 2]), ("be", [3, 4])]).batch(2)
    assert tokens.collect()[0][1].tolist() == [[1, 2], [3, 4]]
    data = fl.from_items([("to", b"2")]).batch(1)
    assert data.collect() == [(["to"], [b"2"])]

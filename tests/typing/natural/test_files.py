"""Programs that use files: image folders, tables, records and stores, existing and new."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import attrs
import h5py  # type: ignore[import-untyped]  # it has no types
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

import flowdsl as fl

Picture = NDArray[np.uint8]


class Sample(NamedTuple):
    image: Picture
    label: int


class Encoded(TypedDict):
    jpeg: bytes
    label: int


@dataclass
class House:
    rooms: int
    price: float
    town: str


@attrs.frozen
class Point:
    x: float
    y: float


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a temporary folder, as these programs use relative file names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pictures(folder: Path) -> Path:
    for kind in ("cat", "dog"):
        (folder / "pets" / kind).mkdir(parents=True)
        for i in range(4):
            shade = np.full((24 + i, 32, 3), 40 * i, np.uint8)
            Image.fromarray(shade).save(folder / "pets" / kind / f"{i}.jpg")
    return folder / "pets"


# -- images ----------------------------------------------------------------------------------------


def test_images_of_a_pattern(pictures: Path) -> None:
    for images in fl.from_images("pets/*/*.jpg", resize=(16, 16)).batch(4):
        assert images.shape == (4, 16, 16, 3)


def test_images_with_labels_from_their_folders(pictures: Path) -> None:
    classes = sorted(path.name for path in pictures.iterdir())
    paths = sorted(pictures.glob("*/*.jpg"))
    images = fl.from_images(paths, resize=16)
    labels = fl.from_items([classes.index(path.parent.name) for path in paths])
    x, y = images.zip(labels).shuffle(seed=1).batch(8).collect()[0]
    assert x.shape == (8, 16, 16, 3)
    assert sorted(y.tolist()) == [0] * 4 + [1] * 4


def test_paths_and_labels_decoded_by_a_function(pictures: Path) -> None:
    def load(path: str, label: int) -> tuple[Picture, int]:
        return fl.decode_image(Path(path).read_bytes(), resize=16), label

    pairs = [(str(path), i) for i, path in enumerate(sorted(pictures.glob("*/*.jpg")))]
    for images, labels in fl.from_items(pairs).starmap(load).batch(2).prefetch(threads=2):
        assert images.dtype == np.uint8
        assert labels.shape == (2,)


def test_grey_images_scaled_to_floats(pictures: Path) -> None:
    floats = fl.from_images("pets/cat/*.jpg", channels=1, resize=8).map(lambda x: x / 255)
    assert floats.batch(4).collect()[0].shape == (4, 8, 8, 1)


def test_images_flipped_at_random(pictures: Path) -> None:
    def flip(image: Picture, rng: np.random.Generator) -> Picture:
        return image[:, ::-1] if rng.random() < 0.5 else image

    flow = fl.from_images("pets/*/*.jpg").random_map(flip, seed=1)
    assert sum(image.shape[2] for image in flow) == 3 * 8


def test_random_crops_of_jpegs(pictures: Path) -> None:
    crop = fl.random_resized_crop(16)
    jpegs = fl.from_files("pets/*/*.jpg").map(lambda path: Path(path).read_bytes())
    assert jpegs.random_map(crop, seed=1).batch(8).collect()[0].shape == (8, 16, 16, 3)


def test_images_and_masks_augmented_together() -> None:
    def mirror(image: Picture) -> Picture:
        return image[:, ::-1]

    rows = [{"image": np.zeros((4, 4, 3), np.uint8), "mask": np.eye(4, dtype=np.uint8)}] * 2
    for row in fl.from_items(rows).augment(mirror, images="image", seed=3):
        assert row["mask"].trace() == 4


def test_sizes_before_anything_is_decoded(pictures: Path) -> None:
    def is_tall(path: str) -> bool:
        height, _ = fl.image_size(Path(path).read_bytes())
        return height > 25

    assert len(fl.from_files("pets/*/*.jpg").filter(is_tall).collect()) == 4


def test_damaged_images_left_out(pictures: Path) -> None:
    (pictures / "cat" / "9.jpg").write_bytes(b"no image")
    flow = fl.from_images("pets/*/*.jpg", resize=8).prefetch(threads=2, on_error="skip")
    assert len(flow.collect()) == 8


# -- LMDB ------------------------------------------------------------------------------------------


def samples(n: int = 10) -> fl.Flow[Sample, fl.Exact]:
    return fl.from_range(n).map(lambda i: Sample(np.full((4, 4, 3), i, np.uint8), i))


def test_a_store_of_samples() -> None:
    samples().write_lmdb("train.lmdb")
    train = fl.from_lmdb("train.lmdb", Sample).shuffle(seed=1).batch(5).prefetch(procs=2)
    for images, labels in train:
        assert (images[:, 0, 0, 0] == labels).all()


def test_jpegs_stored_and_decoded_in_workers(pictures: Path) -> None:
    def encoded(path: Path) -> Encoded:
        return {"jpeg": path.read_bytes(), "label": len(path.parent.name)}

    fl.from_items(sorted(pictures.glob("*/*.jpg"))).map(encoded).write_lmdb("pets.lmdb")

    def decoded(row: Encoded) -> Sample:
        return Sample(fl.decode_image(row["jpeg"], resize=8), row["label"])

    flow = fl.from_lmdb("pets.lmdb", Encoded).shuffle(seed=1).map(decoded).batch(4)
    for images, labels in flow.prefetch(procs=2):
        assert images.shape == (4, 8, 8, 3)
        assert set(labels.tolist()) == {3}


def test_a_store_that_grows() -> None:
    for _ in range(2):
        samples(3).write_lmdb("log.lmdb", append=True)
    assert len(fl.from_lmdb("log.lmdb", Sample)) == 6


def test_a_store_of_dataclasses() -> None:
    houses = [House(3, 1.5, "Bern"), House(5, 2.5, "Basel")]
    fl.from_items(houses).write_lmdb("houses.lmdb")
    assert fl.from_lmdb("houses.lmdb", House).map(lambda h: h.price).collect() == [1.5, 2.5]


def test_anybody_s_store() -> None:
    with lmdb.open("words") as store, store.begin(write=True) as txn:
        for i, word in enumerate(["to", "be"]):
            txn.put(f"{i:08}".encode(), word.encode())
    words = fl.from_lmdb_raw("words", keys="{:0>8d}").map(lambda row: row[1].decode())
    assert words.collect() == ["to", "be"]


# -- tables ----------------------------------------------------------------------------------------


def test_a_csv_file_of_dataclasses(folder: Path) -> None:
    with (folder / "houses.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("rooms", "price", "town"), (3, 1.5, "Bern"), (5, 2.5, "Basel")])
    flow = fl.from_csv("houses.csv", House).filter(lambda house: house.rooms > 3)
    assert [house.town for house in flow] == ["Basel"]


def test_a_csv_file_as_features_and_target() -> None:
    Path("points.csv").write_text("x,y,z\n1,2,3\n4,5,6\n")
    pairs = fl.from_csv("points.csv").map(
        lambda row: (np.array([float(row["x"]), float(row["y"])]), float(row["z"]))
    )
    x, y = pairs.batch(2).collect()[0]
    assert x.tolist() == [[1, 2], [4, 5]]
    assert y.tolist() == [3, 6]


def test_a_table_declared() -> None:
    pq.write_table(pa.table({"x": [0.5, 1.5], "y": [1.0, 2.0]}), "points.parquet")
    points = fl.from_parquet("points.parquet", Point)
    assert points.map(lambda p: p.x + p.y).collect() == [1.5, 3.5]


def test_a_table_looked_at() -> None:
    pq.write_table(pa.table({"x": [1, 2, 3], "town": ["Bern", "Basel", None]}), "t.parquet")
    assert fl.from_parquet("t.parquet").map(lambda row: row["town"]).at(1) == "Basel"
    for batch in fl.from_parquet("t.parquet", columns=["x"]).batch(3):
        assert batch["x"].sum() == 6


def test_many_tables_shuffled_by_row_group() -> None:
    for k in range(3):
        table = pa.table({"x": [10.0 * k + i for i in range(10)], "y": [0.0] * 10})
        pq.write_table(table, f"part-{k}.parquet", row_group_size=5)
    flow = fl.from_parquet("part-*.parquet", Point).shuffle(seed=1, block=5).shuffle(8, seed=2)
    assert sorted(p.x for p in flow) == [float(i) for i in range(30)]


def test_predictions_written_as_a_table() -> None:
    flow = fl.from_range(4).map(lambda i: {"id": i, "score": i / 4, "label": f"class {i % 2}"})
    flow.write_parquet("predictions.parquet")
    assert pq.read_table("predictions.parquet")["score"].to_pylist() == [0, 0.25, 0.5, 0.75]
    flow.write_csv("predictions.csv")
    assert Path("predictions.csv").read_text().splitlines()[1] == "0,0.0,class 0"


# -- arrays ----------------------------------------------------------------------------------------


def test_datasets_of_an_hdf5_file() -> None:
    with h5py.File("data.h5", "w") as file:
        file["images"], file["labels"] = np.zeros((6, 4, 4), np.float32), np.arange(6)
    flow = fl.from_hdf5("data.h5", ["images", "labels"])
    for images, labels in flow.shuffle(seed=1).batch(3):
        assert images.shape == (3, 4, 4)
        assert labels.shape == (3,)


def test_datasets_of_an_hdf5_file_declared() -> None:
    with h5py.File("data.h5", "w") as file:
        file["images"], file["labels"] = np.zeros((6, 4, 4), np.float32), np.arange(6)
    pairs = fl.from_hdf5("data.h5", ["images", "labels"], tuple[NDArray[np.float32], np.int64])
    assert pairs.map(lambda pair: pair[0].mean() + pair[1]).collect() == [0, 1, 2, 3, 4, 5]


def test_arrays_of_an_npz_file() -> None:
    np.savez("mnist.npz", x=np.zeros((4, 28, 28), np.uint8), y=np.arange(4))
    for batch in fl.from_npz("mnist.npz").batch(2):
        assert batch["x"].shape == (2, 28, 28)
    flow = fl.from_npz("mnist.npz").map(lambda row: (row["x"] / 255.0, row["y"]))
    assert flow.at(3)[1] == 3


def test_rows_of_an_npy_file() -> None:
    np.save("tokens.npy", np.arange(12, dtype=np.uint16).reshape(3, 4))
    flow = fl.from_npy("tokens.npy", NDArray[np.uint16]).map(lambda row: (row[:-1], row[1:]))
    inputs, targets = flow.batch(3).collect()[0]
    assert (targets == inputs + 1).all()


def test_sparse_features() -> None:
    from sklearn.datasets import dump_svmlight_file  # here: workers import this module

    features = np.array([[0, 1.5, 0], [2, 0, 3]])
    dump_svmlight_file(features, np.array([1, -1]), "a.svm", zero_based=False)
    x, y = fl.from_svmlight("a.svm").batch(2).collect()[0]
    assert (x == features).all()
    assert y.tolist() == [1, -1]


# -- records and archives --------------------------------------------------------------------------


class Example(TypedDict):
    label: int
    values: NDArray[np.float32]


def test_examples_written_and_parsed() -> None:
    def example(i: int) -> Example:
        return {"label": i, "values": np.full(3, i, np.float32)}

    for k in range(2):
        rows = fl.from_range(4).map(example).map(fl.to_example)
        rows.write_tfrecord(f"train-{k:05}-of-00002.tfrecord")
    flow = fl.from_tfrecord("train-*.tfrecord").map(fl.parse_example(Example))
    for batch in flow.shuffle(seed=1).batch(4):
        assert batch["values"].shape == (4, 3)
    assert sorted(flow.map(lambda row: row["label"])) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_records_of_bytes_compressed() -> None:
    fl.from_items([b"one", b"two"]).write_tfrecord("a.tfrecord.gz", compression="gzip")
    flow = fl.from_tfrecord("a.tfrecord.gz", compression="gzip")
    assert flow.map(lambda record: record.decode()).collect() == ["one", "two"]


def test_elements_as_records() -> None:
    samples().write_tfrecord("samples.tfrecord")
    samples().write_arrayrecord("samples.arrayrecord")
    for flow in (
        fl.from_tfrecord("samples.tfrecord", Sample),
        fl.from_arrayrecord("samples.arrayrecord", Sample),
    ):
        assert [sample.label for sample in flow.skip(7)] == [7, 8, 9]


def _member(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def test_an_archive_of_samples(pictures: Path) -> None:
    with tarfile.open("pets.tar", "w") as archive:
        for path in sorted(pictures.glob("*/*.jpg")):
            name = f"{path.parent.name}-{path.stem}"
            _member(archive, f"{name}.jpg", path.read_bytes())
            _member(archive, f"{name}.json", json.dumps({"pet": path.parent.name}).encode())

    def decoded(sample: dict[str, Any]) -> tuple[Picture, str]:
        return fl.decode_image(sample["jpg"], resize=8), json.loads(sample["json"])["pet"]

    flow = fl.from_webdataset("pets.tar").shuffle(seed=1).map(decoded)
    assert sorted({pet for _, pet in flow}) == ["cat", "dog"]


def test_lines_of_text() -> None:
    Path("corpus.txt").write_text("to be or\nnot to be\n")
    words: dict[str, int] = {}
    ids = fl.from_text("corpus.txt").map(
        lambda line: [words.setdefault(word, len(words)) for word in line.split()]
    )
    assert ids.collect() == [[0, 1, 2], [3, 0, 1]]
    lengths = fl.from_text("corpus.txt").map(len)
    assert lengths.collect() == [8, 9]


def test_lines_of_json() -> None:
    rows = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}]
    fl.from_items(rows).map(json.dumps).write_text("reviews.jsonl")
    flow = fl.from_text("reviews.jsonl").map(json.loads).batch(2)
    assert flow.collect()[0]["label"].tolist() == [1, 0]


# -- elsewhere, and on the way ---------------------------------------------------------------------


def test_files_elsewhere_read_and_fetched() -> None:
    memory: Any = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe("/bucket/a.txt", b"one\ntwo\n")
    assert fl.from_text("memory://bucket/*.txt").prefetch(threads=4).collect() == ["one", "two"]
    for path in fl.fetch("memory://bucket/*.txt", "cache"):
        assert Path(path).read_text() == "one\ntwo\n"


def test_training_goes_on_where_it_was_stopped() -> None:
    samples(20).write_lmdb("train.lmdb")
    flow = fl.from_lmdb("train.lmdb", Sample).shuffle(seed=1).map(lambda s: s.label).batch(4)
    with flow.epoch(0) as run:
        first = next(run).tolist()
        state = run.state_dict()
    with flow.resume(state) as run:
        rest = [label for batch in run for label in batch.tolist()]
    assert sorted([*first, *rest]) == list(range(20))


def test_each_machine_reads_a_share() -> None:
    samples(9).write_tfrecord("all.tfrecord")
    shares = [fl.from_tfrecord("all.tfrecord", Sample).shard(3, i).collect() for i in range(3)]
    assert sorted(s.label for share in shares for s in share) == list(range(9))


def test_one_format_into_another() -> None:
    Path("points.csv").write_text("x,y\n1,2\n3,4\n")
    fl.from_csv("points.csv", Point).write_parquet("points.parquet")
    fl.from_parquet("points.parquet", Point).write_lmdb("points.lmdb")
    fl.from_lmdb("points.lmdb", Point).map(lambda p: (p.x, p.y)).write_hdf5("p.h5", ["x", "y"])
    with h5py.File("p.h5") as file:
        assert np.asarray(file["y"]).tolist() == [2, 4]


def test_a_generator_of_files(pictures: Path) -> None:
    def scan() -> Iterator[Path]:
        yield from sorted(pictures.rglob("*.jpg"))

    sizes = fl.from_iterable(scan).map(lambda path: len(path.read_bytes()))
    assert sizes.prefetch(threads=2).map(lambda size: size > 0).collect() == [True] * 8

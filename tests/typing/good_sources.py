"""Sources: chains of exactly these types, as in ``good``."""

from __future__ import annotations

import pickle
import queue
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, assert_type

import lmdb
import numpy as np
import simplejpeg
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Exact, Flow, Resampled, Unsized
from tests.typing.good import (
    F32,
    I64,
    U8,
    A,
    Features,
    Point,
    PointBatch,
    Sample,
    SampleBatch,
    arrays,
    features,
    is_even,
    lines,
    points,
    samples,
)


class Named(NamedTuple):
    n: int


# -- in memory -------------------------------------------------------------------------------------

assert_type(fl.from_range(3), Flow[int, Exact])
assert_type(fl.from_items("ab"), Flow[str, Exact])
assert_type(fl.from_items((1.5, 2.5)), Flow[float, Exact])
assert_type(fl.from_items([("a", 1), ("b", 2)]), Flow[tuple[str, int], Exact])
assert_type(fl.from_items([{"a": 1}]).map(lambda d: d["a"]), Flow[int, Exact])
assert_type(fl.from_items(np.zeros((4, 3), np.float32)).batch(2), Flow[Any, Exact])
assert_type(fl.from_items(samples.collect()), Flow[Sample, Exact])
assert_type(samples.map(features).map(lambda f: f["label"]), Flow[np.int64, Exact])


class Frame:
    """As the data frames of Polars are typed."""

    @property
    def columns(self) -> list[str]:
        return []

    def __len__(self) -> int:
        return 0

    def __getitem__(self, name: str) -> int:
        return 0

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return None


def of_frames(frame: Frame) -> None:
    assert_type(fl.from_items(frame), Flow[dict[str, Any], Exact])


# -- arrays side by side ---------------------------------------------------------------------------

x: F32 = np.zeros((4, 3), np.float32)
y: I64 = np.arange(4)
z: U8 = np.zeros((4, 2, 2), np.uint8)
xs, ys = {"x": x, "x2": x}, {"y": y}

assert_type(fl.from_items(x), Flow[Any, Exact])
assert_type(fl.from_items((x,)), Flow[tuple[Any], Exact])
assert_type(fl.from_items((x, y)), Flow[tuple[Any, Any], Exact])
assert_type(fl.from_items((x, y, z, y)), Flow[tuple[Any, Any, Any, Any], Exact])
assert_type(fl.from_items(tuple(arrays.collect())), Flow[tuple[Any, ...], Exact])
assert_type(fl.from_items(xs), Flow[dict[str, Any], Exact])
assert_type(fl.from_items(SampleBatch(z, y)), Flow[tuple[Any, Any], Exact])
assert_type(fl.from_items([x, x]), Flow[F32, Exact])
assert_type(fl.from_items((x, y)).batch(2), Flow[tuple[Any, ...], Exact])
assert_type(fl.from_items(xs).batch(2), Flow[dict[str, Any], Exact])
held: tuple[Flow[tuple[F32, np.int64], Exact], ...] = fl.from_items((x, y)).split(0.5)
bare: np.ndarray = z
of_any: Any = x
both = {"x": x, "y": y}
mixed: Flow[dict[str, NDArray[Any]]] = fl.from_items(both).batch(2)
bared: Flow[tuple[NDArray[Any], NDArray[Any]]] = fl.from_items((bare, of_any)).batch(2)
nested: Flow[dict[str, Any]] = fl.from_items({"x": (x, y), "y": y})

# -- made up ---------------------------------------------------------------------------------------

assert_type(fl.fake([(28, 28), ()]), Flow[tuple[F32, ...], Exact])
assert_type(fl.fake([[2, 3]], 10, random=False, seed=3), Flow[tuple[F32, ...], Exact])
assert_type(fl.fake([(2, 3)], dtype=np.uint8, domain=(0, 256)), Flow[tuple[U8, ...], Exact])
assert_type(fl.fake([(2, 3)], dtype=np.dtype(np.uint8)), Flow[tuple[U8, ...], Exact])
assert_type(fl.fake([(2,)], dtype=np.uint8).batch(4), Flow[tuple[U8, ...], Exact])

# -- streams ---------------------------------------------------------------------------------------


def filled(*elements: A) -> queue.Queue[A]:
    q: queue.Queue[A] = queue.Queue()
    for element in elements:
        q.put(element)
    return q


ended: queue.Queue[str | None] = filled("a", None)
marked: queue.Queue[str] = filled("a", "b", "")
again = fl.from_queue(filled(1, None)).cache().repeat_each(2)

assert_type(fl.from_iterable([1, 2]), Flow[int, Unsized])
assert_type(fl.from_iterable(lines), Flow[str, Unsized])
assert_type(fl.from_iterable(lines()), Flow[str, Unsized])
assert_type(fl.from_iterable(lambda: (i / 2 for i in range(3))), Flow[float, Unsized])
assert_type(fl.from_iterable({"a": 1}.items()), Flow[tuple[str, int], Unsized])
assert_type(fl.from_iterable(samples.shuffle()), Flow[Sample, Unsized])
assert_type(fl.from_queue(ended), Flow[str, Unsized])
assert_type(fl.from_queue(marked, end="", timeout=0.5), Flow[str, Unsized])
assert_type(again, Flow[int, Unsized | Resampled])

# -- images ----------------------------------------------------------------------------------------

jpeg: bytes = simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8))
small = partial(fl.decode_image, resize=4)

assert_type(fl.from_items([jpeg]).map(fl.decode_image), Flow[U8, Exact])
assert_type(fl.from_items([jpeg]).map(small).batch(1), Flow[U8, Exact])
assert_type(
    fl.from_items([(jpeg, 1)]).map(
        lambda row: (fl.decode_image(row[0], crop=(0, 0, 4, 4)), row[1])
    ),
    Flow[tuple[U8, int], Exact],
)
assert_type(
    fl.from_items([(jpeg, 1)]).map_component(fl.decode_image, 0), Flow[tuple[U8, int], Exact]
)
assert_type(fl.from_items([jpeg]).map(fl.image_size), Flow[tuple[int, int], Exact])
assert_type(
    fl.from_items([jpeg]).random_map(fl.random_resized_crop(4, scale=(0.2, 1)), seed=1),
    Flow[U8, Exact],
)


class Label(NamedTuple):
    label: np.int64


# -- files -----------------------------------------------------------------------------------------


class Pet(TypedDict):
    txt: str


def stored(folder: Path) -> None:
    (folder / "a.png").touch()
    assert_type(fl.from_files(folder / "*.png"), Flow[str, Exact])
    assert_type(fl.from_files([f"{folder}/*.png", folder / "a.png"]), Flow[str, Exact])

    (folder / "a.jpg").write_bytes(jpeg)
    assert_type(fl.from_images(folder / "*.jpg"), Flow[U8, Exact])
    assert_type(fl.from_images([f"{folder}/a.jpg"] * 2, resize=8).batch(2), Flow[U8, Exact])
    assert_type(fl.from_images(str(folder / "a.jpg"), channels=1, resize=(8, 4)), Flow[U8, Exact])

    path, dict_path = folder / "samples.lmdb", str(folder / "dicts.lmdb")
    assert_type(samples.write_lmdb(path), int)
    assert_type(samples.map(features).write_lmdb(dict_path, overwrite=True), int)

    assert_type(fl.from_lmdb(path), Flow[object, Exact])
    assert_type(fl.from_lmdb(path, Sample), Flow[Sample, Exact])
    assert_type(fl.from_lmdb(path, Sample, trusted=True, partial=True), Flow[Sample, Exact])
    assert_type(fl.from_lmdb(str(path), tuple[U8, np.int64]), Flow[tuple[U8, np.int64], Exact])

    bytes_ = bytes([8, 1, 16, 1, 24, 1, 34, 1, 255, 40, 7])  # as Caffe writes a pixel of label 7
    floats_ = bytes([8, 1, 16, 1, 24, 1, 53, 0, 0, 0, 0, 40, 7])
    pickled = pickle.dumps([np.zeros((2, 2), np.uint8), np.int64(3)])
    stored = {"bytes": bytes_, "floats": floats_, "pickled": pickled}
    for name, value in stored.items():
        with lmdb.open(str(folder / name)) as store, store.begin(write=True) as txn:
            txn.put(b"00000000", value)
    raw = fl.from_lmdb_raw(folder / "bytes", ["00000000", b"00000000"])
    assert_type(raw, Flow[tuple[bytes, bytes], Exact])
    formatted = fl.from_lmdb_raw(folder / "bytes", "{:0>8d}")
    assert_type(formatted, Flow[tuple[bytes, bytes], Exact])
    any_rows = fl.from_tensorpack_lmdb(folder / "pickled", trusted=True)
    assert_type(any_rows, Flow[Any, Exact])
    datapoints = fl.from_tensorpack_lmdb(folder / "pickled", Sample, trusted=True)
    assert_type(datapoints, Flow[Sample, Exact])
    assert_type(fl.from_caffe_lmdb(folder / "bytes"), Flow[tuple[U8, int], Exact])
    floats = fl.from_caffe_lmdb(folder / "floats", dtype="float32")
    assert_type(floats, Flow[tuple[NDArray[np.float32], int], Exact])

    shaped = fl.from_lmdb(path, tuple[Annotated[U8, fl.Shape(None, 3)], np.int64])
    assert_type(shaped, Flow[tuple[U8, np.int64], Exact])
    assert_type(fl.from_lmdb(dict_path, Features), Flow[Features, Exact])
    assert_type(fl.from_lmdb(path, Sample).batch(4), Flow[tuple[U8, I64], Exact])

    lines_path = folder / "lines.txt"
    assert_type(fl.from_items(["a", "b"]).write_text(lines_path), int)
    assert_type(fl.from_text(lines_path), Flow[str, Exact])
    assert_type(fl.from_text([f"{folder}/*.txt", lines_path], encoding="latin-1"), Flow[str, Exact])
    table_path = folder / "table.csv"
    assert_type(fl.from_items([Named(1), Named(2)]).write_csv(table_path), int)
    assert_type(fl.from_text(lines_path, compression=None), Flow[str, Exact])
    assert_type(fl.from_csv(table_path, compression="infer"), Flow[dict[str, str], Exact])
    assert_type(fl.from_csv(table_path), Flow[dict[str, str], Exact])
    assert_type(fl.from_csv(table_path, columns=["n"]), Flow[dict[str, str], Exact])
    assert_type(fl.from_csv(table_path, header=False), Flow[tuple[str, ...], Exact])
    assert_type(fl.from_csv(table_path, header=False, columns=["n"]), Flow[dict[str, str], Exact])
    flag = is_even(2)
    cells = fl.from_csv(table_path, header=flag)
    assert_type(cells, Flow[dict[str, str] | tuple[str, ...], Exact])
    assert_type(fl.from_csv(table_path, header=flag, columns=["n"]), Flow[dict[str, str], Exact])
    assert_type(fl.from_csv(table_path, Named, header=flag), Flow[Named, Exact])
    assert_type(fl.from_csv(table_path, Named), Flow[Named, Exact])
    assert_type(fl.from_csv(table_path, tuple[int]).batch(2), Flow[tuple[I64], Exact])
    features_path = folder / "features.svm"
    fl.from_items(["1 1:0.5"]).write_text(features_path)
    assert_type(fl.from_svmlight(features_path), Flow[tuple[NDArray[np.float64], float], Exact])
    multilabel = fl.from_svmlight(features_path, multilabel=True)
    assert_type(multilabel, Flow[tuple[NDArray[np.float64], NDArray[np.float64]], Exact])
    sample_path, label_path = folder / "samples.tfrecord", str(folder / "labels.tfrecord")
    assert_type(samples.write_tfrecord(sample_path), int)
    assert_type(fl.from_tfrecord(sample_path, Sample, size=len(samples)), Flow[Sample, Exact])
    assert_type(fl.from_tfrecord([sample_path], Sample).batch(4), Flow[tuple[U8, I64], Exact])
    examples = samples.map(lambda sample: Label(sample.label)).map(fl.to_example)
    assert_type(examples.write_tfrecord(label_path), int)
    assert_type(fl.from_tfrecord(f"{folder}/lab*.tfrecord"), Flow[bytes, Exact])
    labels = fl.from_tfrecord(label_path).map(fl.parse_example(Label))
    assert_type(labels, Flow[Label, Exact])
    assert_type(labels.batch(4), Flow[tuple[I64], Exact])
    zipped = f"{label_path}.gz"
    examples.write_tfrecord(zipped, compression="gzip", overwrite=True)
    assert_type(fl.from_tfrecord(zipped, compression="gzip"), Flow[bytes, Unsized])
    samples.write_tfrecord(zipped, compression="zlib", overwrite=True)
    assert_type(fl.from_tfrecord(zipped, Sample, compression="zlib"), Flow[Sample, Unsized])
    table = folder / "samples.parquet"
    assert_type(samples.write_parquet(table, row_group=2), int)
    assert_type(fl.from_parquet(table), Flow[Any, Exact])
    assert_type(fl.from_parquet([table], columns=["image"]), Flow[Any, Exact])
    assert_type(fl.from_parquet([str(table)], Sample), Flow[Sample, Exact])
    assert_type(fl.from_parquet(table, Sample, fill={"label": 0}), Flow[Sample, Exact])

    records = folder / "samples.arrayrecord"
    assert_type(samples.write_arrayrecord(records, group_size=2), int)
    assert_type(fl.from_arrayrecord([str(records)], Sample), Flow[Sample, Exact])
    plain = folder / "bytes.arrayrecord"
    assert_type(fl.from_items([b"a"]).write_arrayrecord(plain), int)
    assert_type(fl.from_arrayrecord(plain), Flow[bytes, Exact])

    tar = folder / "pets.tar"
    pets = fl.from_items([{"__key__": "cat", "txt": "a cat"}])
    assert_type(pets.write_webdataset(tar, overwrite=True), int)
    assert_type(fl.from_webdataset(tar), Flow[dict[str, Any], Exact])
    assert_type(fl.from_webdataset([str(tar)], Pet), Flow[Pet, Exact])

    fl.from_range(3).map(lambda i: (i, i / 2)).write_hdf5(folder / "rows.h5", ["x", "y"])
    assert_type(fl.from_hdf5(folder / "rows.h5", ["x", "y"]), Flow[Any, Exact])
    pairs = fl.from_hdf5(folder / "rows.h5", ("x", "y"), tuple[int, float])
    assert_type(pairs, Flow[tuple[int, float], Exact])
    assert_type(pairs.write_npz(folder / "rows.npz"), int)
    assert_type(fl.from_npz(folder / "rows.npz"), Flow[Any, Exact])
    again = fl.from_npz(folder / "rows.npz", tuple[int, float], trusted=True)
    assert_type(again, Flow[tuple[int, float], Exact])
    np.save(folder / "rows.npy", np.zeros((2, 2), np.uint8))
    assert_type(fl.from_npy(folder / "rows.npy"), Flow[Any, Exact])
    assert_type(fl.from_npy(folder / "rows.npy", NDArray[np.uint8]).batch(2), Flow[U8, Exact])

    points_path, arrays_path = folder / "points.lmdb", folder / "arrays.lmdb"
    points.write_lmdb(points_path)
    arrays.write_lmdb(arrays_path)
    assert_type(fl.from_lmdb(points_path, Point).batch(4), Flow[PointBatch, Exact])
    assert_type(fl.from_lmdb(arrays_path, NDArray[np.uint8]).batch(4), Flow[U8, Exact])
    assert_type(fl.from_lmdb(arrays_path, Annotated[U8, fl.Shape(2, None)]), Flow[U8, Exact])

"""Files of other programs, for the fuzzer: their rows have no checksums."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import h5py  # type: ignore[import-untyped]  # it has no types
import lmdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ml_dtypes import bfloat16
from numpy.typing import NDArray
from PIL import Image

import flowdsl as fl
from flowdsl.testing.formats import Format
from flowdsl.testing.recipes import AnyFlow
from tests.storage.jpegs import sampled_jpeg

_Floats: TypeAlias = NDArray[np.float32]
_Numbers: TypeAlias = NDArray[np.int64]
_NUMBERS: list[object] = list(range(12))


class _Example(TypedDict):
    label: int
    image: bytes


def _of(
    write: Callable[[Sequence[Any], Path], object], read: Callable[[Path], AnyFlow], suffix: str
) -> Format:
    def written(flow: AnyFlow, path: Path) -> int:
        rows = flow.collect()
        write(rows, path)
        return len(rows)

    return Format(written, read, suffix=suffix, some=_NUMBERS, checked=False)


def _pixels(i: int) -> Any:
    return np.random.default_rng(i).integers(0, 255, (9 + i, 14, 3), np.uint8)


def _images(rows: Sequence[int], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    kinds = ["jpg", "png", "webp", "bmp", "gif"]
    for i in rows:
        kind = kinds[i % len(kinds)]
        options: dict[str, Any] = {"progressive": True} if i > 6 and kind == "jpg" else {}
        Image.fromarray(_pixels(i)).save(folder / f"{i:03}.{kind}", **options)


def _photographs(rows: Sequence[int], folder: Path) -> None:
    """Write images as cameras and other programs do: turned, of unusual samplings."""
    folder.mkdir(exist_ok=True)
    samplings = [[(1, 4), (1, 1), (1, 1)], [(4, 2), (1, 1), (1, 1)], [(2, 2), (2, 1), (1, 2)]]
    for i in rows:
        exif = Image.Exif()
        exif[0x112] = 1 + i % 8
        kind = ["jpg", "png", "webp"][i % 3]
        if i < len(samplings):
            (folder / f"{i:03}.jpg").write_bytes(sampled_jpeg(9 + i, 14, samplings[i], i))
        else:
            Image.fromarray(_pixels(i)).save(folder / f"{i:03}.{kind}", exif=exif)


def _masks(rows: Sequence[int], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for i in rows:
        mask = Image.fromarray(_pixels(i)[:, :, 0] // 16, "P")
        mask.putpalette(bytes(range(3 * 16)))
        mask.save(folder / f"{i:03}.{['png', 'gif', 'bmp'][i % 3]}")


def _svmlight(rows: Sequence[int], path: Path) -> None:
    path.write_text("".join(f"{i} qid:{i} 1:0.5 3:{i} # {i}\n" for i in rows))


def _lmdb(value: Callable[[int], bytes]) -> Callable[[Sequence[int], Path], None]:
    def write(rows: Sequence[int], path: Path) -> None:
        with (
            lmdb.open(str(path), subdir=False, map_size=1 << 24, lock=False) as store,
            store.begin(write=True) as txn,
        ):
            for i in rows:
                txn.put(b"%08d" % i, value(i))

    return write


def _named_lmdb(rows: Sequence[int], path: Path) -> None:
    with lmdb.open(str(path), subdir=False, map_size=1 << 24, lock=False, max_dbs=2) as store:
        for name in (b"a", b"b"):
            db = store.open_db(name)
            with store.begin(write=True) as txn:
                for i in rows:
                    txn.put(b"%08d" % i, b"value %d" % i * (1 + 400 * (i % 2)), db=db)


def _datum(i: int) -> bytes:
    return b"\x08\x01\x10\x01\x18\x01\x22\x01\x00\x28" + bytes([i])


def _encoded_datum(i: int) -> bytes:
    data = io.BytesIO()
    Image.fromarray(_pixels(i)).save(data, "JPEG")
    jpeg = data.getvalue()
    assert 128 <= len(jpeg) < 1 << 14
    length = bytes([len(jpeg) & 127 | 128, len(jpeg) >> 7])
    return b"\x08\x03\x10\x09\x18\x0e\x22" + length + jpeg + b"\x28" + bytes([i]) + b"\x38\x01"


def _datapoint(i: int) -> bytes:
    array = {b"nd": True, b"type": "<i8", b"kind": b"", b"shape": [i], b"data": bytes(8 * i)}
    return msgspec.msgpack.encode([i, array])


def _examples(rows: Sequence[int], path: Path) -> None:
    examples = fl.from_items([_Example(label=i, image=b"x" * i) for i in rows])
    examples.map(fl.to_example).write_tfrecord(path, overwrite=True)


def _tar(kind: str) -> Callable[[Sequence[int], Path], None]:
    def write(rows: Sequence[int], path: Path) -> None:
        form = tarfile.PAX_FORMAT if kind == "pax" else tarfile.GNU_FORMAT
        with tarfile.open(path, "w", format=form) as file:
            for i in rows:
                for extension, data in (("txt", b"text %d" % i), ("bin", bytes(600 + i))):
                    info = tarfile.TarInfo(f"{'long ' * (30 * (i % 2))}{i}.{extension}")
                    info.size = len(data)
                    file.addfile(info, io.BytesIO(data))

    return write


def _parquet(rows: Sequence[int], path: Path) -> None:
    table = pa.table(
        {
            "number": pa.array(rows, pa.int32()),
            "text": pa.array([f"text {i % 3}" for i in rows]).dictionary_encode(),
            "maybe": [i if i % 2 else None for i in rows],
            "lists": [list(range(i)) for i in rows],
            "nested": [{"x": i, "y": str(i)} for i in rows],
        }
    )
    pq.write_table(table, path, row_group_size=5, compression="zstd", write_statistics=True)


def _hdf5(rows: Sequence[int], path: Path) -> None:
    with h5py.File(path, "w") as file:
        data = np.array([np.full((4, 3), i) for i in rows])
        file.create_dataset("x", data=data, chunks=(5, 4, 3), compression="gzip", shuffle=True)
        file.create_dataset("y", data=[f"text {i}" for i in rows])


def _hdf5_lists(rows: Sequence[int], path: Path) -> None:
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (len(rows),), h5py.vlen_dtype(np.int16), chunks=(5,))
        for i in rows:
            x[i] = np.arange(i)


def _csv(rows: Sequence[int], path: Path) -> None:
    lines = [f'{i}, "a\\"{i}\n", b\\\n{i}\n# "{i}\n' for i in rows]
    path.write_text("".join(lines))


def _csv_of_others(path: Path) -> AnyFlow:
    options: dict[str, Any] = {"comment": "#", "escapechar": "\\", "skipinitialspace": True}
    return fl.from_csv(path, header=False, **options)


def _labels(rows: Sequence[int], path: Path) -> None:
    path.write_text("".join(f"{','.join('123'[: i % 3])} qid:{i} 1:0.5 3:{i}\n" for i in rows))


_HALF: Any = NDArray[bfloat16]  # pyright: ignore[reportInvalidTypeForm]  # it is declared as a variable


def _save(flow: AnyFlow, path: Path) -> int:
    rows = flow.collect()
    np.save(path, np.stack(rows))
    return len(rows)


def _npz(rows: Sequence[int], path: Path) -> None:
    np.savez_compressed(path, x=np.arange(len(rows)), y=np.ones((len(rows), 3, 4)))


_HALVES: list[object] = [np.full((2, 3), i, bfloat16) for i in range(12)]


def _lmdb_in_batches(width: int) -> Format:
    """Rows that are stacked at once, the large ones on pages of their own."""
    return Format(
        lambda flow, path: flow.write_lmdb(path, overwrite=True),
        lambda path: fl.from_lmdb(path, tuple[_Floats, _Numbers]).batch(5).unbatch(),
        suffix=".lmdb",
        some=[(np.full(width, i / 2, np.float32), np.full(3, -i, np.int64)) for i in range(60)],
    )


OTHERS = {
    "npz of halves": Format(
        lambda flow, path: flow.write_npz(path, overwrite=True),
        lambda path: fl.from_npz(path),
        suffix=".npz",
        some=_HALVES,
    ),
    "npy of halves": Format(
        lambda flow, path: _save(flow, path),
        lambda path: fl.from_npy(path, _HALF),
        suffix=".npy",
        some=_HALVES,
        checked=False,
    ),
    "arrayrecord of halves": Format(
        lambda flow, path: flow.write_arrayrecord(path, overwrite=True),
        lambda path: fl.from_arrayrecord(path, object),
        suffix=".arrayrecord",
        some=_HALVES,
    ),
    "lmdb in batches": _lmdb_in_batches(width=7),
    "lmdb in batches, large": _lmdb_in_batches(width=900),
    "images": _of(_images, lambda path: fl.from_images(f"{path}/*"), ""),
    "resized images": _of(_images, lambda path: fl.from_images(f"{path}/*", resize=8), ""),
    "photographs": _of(
        _photographs,
        lambda path: fl.from_images(f"{path}/*", orient=True, truncated="allow"),
        "",
    ),
    "masks": _of(_masks, lambda path: fl.from_images(f"{path}/*", channels="palette"), ""),
    "svmlight": _of(_svmlight, lambda path: fl.from_svmlight(path), ".svm"),
    "lmdb, raw": _of(
        _lmdb(lambda i: b"value %d" % i * (1 + 400 * (i % 2))),
        lambda path: fl.from_lmdb_raw(path),
        ".lmdb",
    ),
    "lmdb, named": _of(_named_lmdb, lambda path: fl.from_lmdb_raw(path, db="b"), ".lmdb"),
    "lmdb of tensorpack": _of(
        _lmdb(_datapoint), lambda path: fl.from_tensorpack_lmdb(path), ".lmdb"
    ),
    "lmdb of caffe": _of(_lmdb(_datum), lambda path: fl.from_caffe_lmdb(path), ".lmdb"),
    "lmdb of caffe, encoded": _of(
        _lmdb(_encoded_datum), lambda path: fl.from_caffe_lmdb(path), ".lmdb"
    ),
    "examples": _of(
        _examples,
        lambda path: fl.from_tfrecord(path).map(fl.parse_example(_Example)),
        ".tfrecord",
    ),
    "tar, pax": _of(_tar("pax"), lambda path: fl.from_webdataset(path), ".tar"),
    "tar, gnu": _of(_tar("gnu"), lambda path: fl.from_webdataset(path), ".tar"),
    "parquet of others": _of(_parquet, lambda path: fl.from_parquet(path), ".parquet"),
    "hdf5 of others": _of(_hdf5, lambda path: fl.from_hdf5(path, ["x", "y"]), ".h5"),
    "hdf5 of lists": _of(_hdf5_lists, lambda path: fl.from_hdf5(path, "x"), ".h5"),
    "csv of others": _of(_csv, _csv_of_others, ".csv"),
    "svmlight, labels": _of(
        _labels, lambda path: fl.from_svmlight(path, multilabel=True, query_id=True), ".svm"
    ),
    "npz of others": _of(_npz, lambda path: fl.from_npz(path), ".npz"),
}

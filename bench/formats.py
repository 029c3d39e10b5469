"""Contestants of ``bench.storage`` for arrays of 100 KB to batches, by format.

flowdsl reads files that it wrote, with its checksums; beside it is who made the format, or reads it
most. Of HDF5 and tar files, all read the same kind of file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench.rates import Pass, Work
from bench.stored import BATCH, LARGE, PROCS, ROWS, array, each_once, stored

_ARRAYS = fl.from_range(ROWS).map(partial(array, LARGE))


def _ours(rows: fl.Flow[Any, Any], procs: int) -> Pass:
    flow = rows.batch(BATCH)
    flow = flow.prefetch(procs=procs) if procs else flow
    return each_once(LARGE, lambda: iter(flow), lambda batch: batch)


def _tfrecord(procs: int) -> Pass:
    path = stored("large-ours.tfrecord", _ARRAYS.write_tfrecord)
    return _ours(fl.from_tfrecord(path, NDArray[np.uint8]), procs)


def _tf_data() -> Pass:
    tf: Any = import_module("tensorflow")
    path = stored("large.tfrecord", _ARRAYS.map(lambda x: x.tobytes()).write_tfrecord)
    rows = tf.data.TFRecordDataset(path).map(lambda data: tf.io.decode_raw(data, tf.uint8))
    rows = rows.batch(BATCH).prefetch(tf.data.AUTOTUNE)
    return each_once(LARGE, rows.as_numpy_iterator, lambda batch: batch)


def _arrayrecord(procs: int) -> Pass:
    path = stored("large-ours.arrayrecord", _ARRAYS.write_arrayrecord)
    return _ours(fl.from_arrayrecord(path, NDArray[np.uint8]), procs)


def _grain() -> Pass:
    grain: Any = import_module("grain.python")
    raw = _ARRAYS.map(lambda x: x.tobytes())
    path = stored("large-raw.arrayrecord", raw.write_arrayrecord)
    rows = grain.MapDataset.source(grain.ArrayRecordDataSource([path]))
    rows = rows.map(lambda data: np.frombuffer(data, np.uint8)).batch(BATCH)
    options = grain.ReadOptions(num_threads=0)
    return each_once(LARGE, lambda: rows.to_iter_dataset(options), lambda batch: batch)


def _hdf5(procs: int) -> Pass:
    path = stored("large-ours.h5", lambda path: _ARRAYS.write_hdf5(path, "x"))
    return _ours(fl.from_hdf5(path, "x", NDArray[np.uint8]), procs)


def _h5py() -> Pass:
    """What a careful person writes: a slice for each batch, of the same file."""
    h5py: Any = import_module("h5py")
    path = stored("large-ours.h5", lambda path: _ARRAYS.write_hdf5(path, "x"))

    def begin() -> Iterator[NDArray[np.uint8]]:
        with h5py.File(path) as file:
            for k in range(0, ROWS, BATCH):
                yield file["x"][k : k + BATCH]

    return each_once(LARGE, begin, lambda batch: batch)


def _tar() -> str:
    return stored("large.tar", _ARRAYS.enumerate().map(_sample).write_webdataset)


def _sample(row: tuple[int, NDArray[np.uint8]]) -> dict[str, Any]:
    content = io.BytesIO()
    np.save(content, row[1])
    return {"__key__": f"{row[0]:08}", "npy": content.getvalue()}


def _loaded(sample: dict[str, Any]) -> NDArray[np.uint8]:
    loaded: NDArray[np.uint8] = np.load(io.BytesIO(sample["npy"]))
    return loaded


def _webdataset(procs: int) -> Pass:
    return _ours(fl.from_webdataset(_tar()).map(_loaded), procs)


def _webdataset_library() -> Pass:
    webdataset: Any = import_module("webdataset")
    rows = webdataset.WebDataset(_tar(), shardshuffle=False).decode().to_tuple("npy")
    batches = rows.batched(BATCH)
    return each_once(LARGE, lambda: iter(batches), lambda batch: batch[0])


def _work(ours: Callable[[int], Pass], other: str, others: Callable[[], Pass]) -> Work:
    workers = f"flowdsl, {PROCS} workers"
    turns: dict[str, Callable[[], Pass]] = {
        "flowdsl": partial(ours, 0),
        workers: partial(ours, PROCS),
        other: others,
    }
    return Work(ROWS, turns, of=other)


WORKS = {
    "100 KB arrays of TFRecord to batches": _work(_tfrecord, "tf.data", _tf_data),
    "100 KB arrays of ArrayRecord to batches": _work(_arrayrecord, "Grain", _grain),
    "100 KB arrays of HDF5 to batches": _work(_hdf5, "h5py", _h5py),
    "100 KB arrays of tar files to batches": _work(_webdataset, "webdataset", _webdataset_library),
}
NEEDS = {"h5py": "h5py", "webdataset": "webdataset"}

"""How fast stored rows come, beside others that read them: ``python -m bench.storage``.

Each figure is rows a second of whole passes, in a process of its own that has read the files once,
so that they are in the system's memory. In each round each contestant has one turn; figures are
medians, and the ratios are what counts. ``make bench-storage`` has everybody; elsewhere, who is not
installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench import elsewhere, formats, photographs
from bench.rates import Pass, Work, run
from bench.stored import BATCH, LARGE, PROCS, ROWS, ROWS_OF, SIDE, array, image_names, stored

SMALL, RECORDS = 10_000, 5_000
TABLE = 50_000


# -- what is stored --------------------------------------------------------------------------------


def _small(i: int) -> bytes:
    return np.random.default_rng(i).bytes(SMALL)


def _entry(i: int) -> dict[str, Any]:
    return {"id": i, "score": i / 7, "name": f"row {i}", "even": i % 2 == 0}


def _our_lmdb(size: int = LARGE) -> str:
    rows = fl.from_range(ROWS_OF[size]).map(partial(array, size))
    return stored(f"ours-{size}.lmdb", lambda path: rows.write_lmdb(path))


def _plain_lmdb(size: int = LARGE) -> str:
    def write(path: Path) -> None:
        lmdb: Any = import_module("lmdb")
        file = lmdb.open(str(path), subdir=False, map_size=1 << 30)
        with file as env, env.begin(write=True) as txn:
            for i in range(ROWS_OF[size]):
                txn.put(b"%08d" % i, array(size, i).tobytes())

    return stored(f"plain-{size}.lmdb", write)


def _tensorpack_lmdb(size: int = LARGE) -> str:
    def write(path: Path) -> None:
        dataflow: Any = import_module("tensorpack.dataflow")
        rows = [[array(size, i)] for i in range(ROWS_OF[size])]
        dataflow.LMDBSerializer.save(dataflow.DataFromList(rows, shuffle=False), str(path))

    return stored(f"tensorpack-{size}.lmdb", write)


def _array_record(name: str, row: Callable[[int], bytes], count: int) -> str:
    def write(path: Path) -> None:
        module: Any = import_module("array_record.python.array_record_module")
        writer = module.ArrayRecordWriter(str(path), "group_size:1")
        for i in range(count):
            writer.write(row(i))
        writer.close()

    return stored(name, write)


def _records() -> str:
    rows = fl.from_range(RECORDS).map(_small)
    return stored("small.tfrecord", lambda path: rows.write_tfrecord(path))


def _table() -> str:
    def write(path: Path) -> None:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
        table = arrow.Table.from_pylist([_entry(i) for i in range(TABLE)])
        parquet.write_table(table, path, row_group_size=5_000)

    return stored("table.parquet", write)


def _photographs_in_lmdb() -> str:
    rows = fl.from_items(image_names()).map(lambda name: Path(name).read_bytes())
    return stored("photographs.lmdb", lambda path: rows.write_lmdb(path))


def _photographs_in_array_record() -> str:
    names = image_names()
    return _array_record(
        "photographs.arrayrecord", lambda i: Path(names[i]).read_bytes(), len(names)
    )


# -- rows of 100 KB --------------------------------------------------------------------------------

_ORDERS = {
    "in order": np.arange(ROWS),
    "shuffled": np.random.default_rng(7).permutation(ROWS),
}


def _plain(order: str) -> Pass:
    """What LMDB's own package takes: look up, and copy."""
    lmdb: Any = import_module("lmdb")
    env = lmdb.open(_plain_lmdb(), subdir=False, readonly=True, lock=False, readahead=False)
    transaction = env.begin(buffers=True)
    keys = [b"%08d" % i for i in _ORDERS[order]]
    return lambda: (np.frombuffer(transaction.get(key), np.uint8).copy() for key in keys)


def _ours(order: str) -> Pass:
    flow: fl.Flow[NDArray[np.uint8], Any] = fl.from_lmdb(_our_lmdb(), NDArray[np.uint8])
    flow = flow.shuffle(seed=7) if order == "shuffled" else flow
    return lambda: iter(flow)


def _ours_in_workers(order: str) -> Pass:
    flow: fl.Flow[NDArray[np.uint8], Any] = fl.from_lmdb(_our_lmdb(), NDArray[np.uint8])
    flow = flow.shuffle(seed=7) if order == "shuffled" else flow
    flow = flow.prefetch(procs=PROCS)
    return lambda: iter(flow)


def _tensorpack(order: str) -> Pass:
    dataflow: Any = import_module("tensorpack.dataflow")
    rows = dataflow.LMDBSerializer.load(_tensorpack_lmdb(), shuffle=order == "shuffled")
    rows.reset_state()
    return lambda: iter(rows)


def _grain(order: str) -> Pass:
    grain: Any = import_module("grain.python")
    path = _array_record("large.arrayrecord", lambda i: array(LARGE, i).tobytes(), ROWS)
    rows = grain.MapDataset.source(grain.ArrayRecordDataSource([path]))
    rows = rows.shuffle(seed=7) if order == "shuffled" else rows
    rows = rows.map(lambda data: np.frombuffer(data, np.uint8))
    return lambda: rows.to_iter_dataset(grain.ReadOptions(num_threads=0))


# -- batches of arrays -----------------------------------------------------------------------------


def _batches(size: int) -> fl.Flow[NDArray[np.uint8], Any]:
    return fl.from_lmdb(_our_lmdb(size), NDArray[np.uint8]).batch(BATCH)


def _our_batches(size: int) -> Pass:
    flow = _batches(size)
    return lambda: iter(flow)


def _our_batches_in_workers(size: int) -> Pass:
    flow = _batches(size).prefetch(procs=PROCS)
    return lambda: iter(flow)


def _plain_batches(size: int) -> Pass:
    """What a careful person writes: views of the map, which are stacked."""
    lmdb: Any = import_module("lmdb")
    env = lmdb.open(_plain_lmdb(size), subdir=False, readonly=True, lock=False, readahead=False)
    transaction = env.begin(buffers=True)
    keys = [b"%08d" % i for i in range(ROWS_OF[size])]

    def begin() -> Iterator[NDArray[np.uint8]]:
        for k in range(0, len(keys), BATCH):
            rows = (transaction.get(key) for key in keys[k : k + BATCH])
            yield np.stack([np.frombuffer(row, np.uint8) for row in rows])

    return begin


def _tensorpack_batches(size: int) -> Pass:
    dataflow: Any = import_module("tensorpack.dataflow")
    rows = dataflow.LMDBSerializer.load(_tensorpack_lmdb(size), shuffle=False)
    batches = dataflow.BatchData(rows, BATCH, remainder=True)
    batches.reset_state()
    return lambda: iter(batches)


# -- records of 10 KB ------------------------------------------------------------------------------


def _our_records() -> Pass:
    flow = fl.from_tfrecord(_records())
    return lambda: iter(flow)


def _tf_data_records() -> Pass:
    tf: Any = import_module("tensorflow")
    rows = tf.data.TFRecordDataset(_records())
    return lambda: rows.as_numpy_iterator()


def _grain_records() -> Pass:
    grain: Any = import_module("grain.python")
    path = _array_record("small.arrayrecord", _small, RECORDS)
    rows = grain.MapDataset.source(grain.ArrayRecordDataSource([path]))
    return lambda: rows.to_iter_dataset(grain.ReadOptions(num_threads=0))


# -- rows of a table -------------------------------------------------------------------------------


def _our_table() -> Pass:
    flow = fl.from_parquet(_table())
    return lambda: iter(flow)


def _pyarrow_table() -> Pass:
    parquet: Any = import_module("pyarrow.parquet")

    def begin() -> Iterator[Any]:
        with parquet.ParquetFile(_table()) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()

    return begin


def _ray_table() -> Pass:
    ray: Any = import_module("ray")
    ray.init(num_cpus=PROCS, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.read_parquet(_table())
    return lambda: rows.iter_rows()


def _grain_table() -> Pass:
    grain: Any = import_module("grain.experimental")
    return lambda: iter(grain.ParquetIterDataset(_table()))


# -- images ----------------------------------------------------------------------------------------


def _decode(data: bytes) -> NDArray[np.uint8]:
    return fl.decode_image(data, resize=(SIDE, SIDE))


def _our_files() -> Pass:
    flow = fl.from_images(image_names(), resize=(SIDE, SIDE)).batch(BATCH).prefetch(procs=PROCS)
    return lambda: iter(flow)


def _our_images_in_lmdb() -> Pass:
    flow = fl.from_lmdb(_photographs_in_lmdb(), bytes).map(_decode).batch(BATCH)
    flow = flow.prefetch(procs=PROCS)
    return lambda: iter(flow)


@attrs.frozen
class _Dataset:
    """What a DataLoader takes: any object with a length and rows by number."""

    read: Callable[[int], NDArray[np.uint8]]

    def __len__(self) -> int:
        return photographs.FILES

    def __getitem__(self, i: int) -> NDArray[np.uint8]:
        return self.read(i)


def _loader(read: Callable[[int], NDArray[np.uint8]]) -> Pass:
    data: Any = import_module("torch.utils.data")
    import_module("torch").set_num_threads(1)
    loader = data.DataLoader(
        _Dataset(read),
        batch_size=BATCH,
        num_workers=PROCS,
        collate_fn=np.stack,
        persistent_workers=True,
    )
    return lambda: iter(loader)


def _loader_files() -> Pass:
    names = image_names()
    return _loader(lambda i: elsewhere.read_image(names[i]))


@attrs.define
class _Lmdb:
    """A store of ours as users of a DataLoader read theirs: opened by each worker."""

    path: str
    transaction: Any = None

    def __call__(self, i: int) -> NDArray[np.uint8]:
        if self.transaction is None:
            lmdb: Any = import_module("lmdb")
            env = lmdb.open(self.path, subdir=False, readonly=True, lock=False, readahead=False)
            self.transaction = env.begin()
        return _decode(self.transaction.get(b"%08d" % i))


def _loader_lmdb() -> Pass:
    def write(path: Path) -> None:
        lmdb: Any = import_module("lmdb")
        file = lmdb.open(str(path), subdir=False, map_size=1 << 30)
        with file as env, env.begin(write=True) as txn:
            for i, name in enumerate(image_names()):
                txn.put(b"%08d" % i, Path(name).read_bytes())

    return _loader(_Lmdb(stored("photographs-plain.lmdb", write)))


def _grain_images(source: Callable[[Any], Any], read: Callable[[Any], Any]) -> Pass:
    grain: Any = import_module("grain.python")
    rows = grain.MapDataset.source(source(grain)).map(read).batch(BATCH)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    workers = grain.MultiprocessingOptions(num_workers=PROCS)
    rows = rows.to_iter_dataset(options).mp_prefetch(workers)
    return lambda: iter(rows)


def _grain_files() -> Pass:
    return _grain_images(lambda _: image_names(), elsewhere.read_image)


def _grain_array_record() -> Pass:
    path = _photographs_in_array_record()
    return _grain_images(lambda grain: grain.ArrayRecordDataSource([path]), _decode)


def _tf_data(in_records: bool) -> Pass:
    """Its own kernels; what is stored is a TFRecord file."""
    tf: Any = import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(PROCS)
    tf.config.threading.set_inter_op_parallelism_threads(PROCS)

    def decoded(data: Any) -> Any:
        image = tf.image.resize(tf.io.decode_jpeg(data, channels=3), (SIDE, SIDE))
        return tf.cast(tf.round(image), tf.uint8)

    if in_records:
        names = image_names()
        bytes_of = fl.from_items(names).map(lambda name: Path(name).read_bytes())
        write: Callable[[Path], object] = bytes_of.write_tfrecord
        rows = tf.data.TFRecordDataset(stored("photographs.tfrecord", write))
    else:
        rows = tf.data.Dataset.from_tensor_slices(image_names()).map(tf.io.read_file)
    rows = rows.map(decoded, num_parallel_calls=PROCS, deterministic=True).batch(BATCH)
    rows = rows.prefetch(tf.data.AUTOTUNE)
    return lambda: rows.as_numpy_iterator()


# -- the works -------------------------------------------------------------------------------------


_NEEDS = {
    "plain lmdb": "lmdb",
    "tensorpack": "tensorpack",
    "Grain": "grain",
    "tf.data": "tensorflow",
    "pyarrow": "pyarrow",
    "Ray Data": "ray",
    "DataLoader": "torch",
    "LitData": "litdata",
    "MosaicML Streaming": "streaming",
    "SPDL": "spdl",
    "SPDL, decode_image": "spdl",
    "Hugging Face datasets": "datasets",
}

WORKS = {
    **{
        f"100 KB arrays, {order}": Work(
            ROWS,
            {
                "flowdsl": partial(_ours, order),
                "flowdsl, 2 workers": partial(_ours_in_workers, order),
                "plain lmdb": partial(_plain, order),
                "tensorpack": partial(_tensorpack, order),
                "Grain": partial(_grain, order),
            },
            goal=0.8,
            of="plain lmdb",
        )
        for order in _ORDERS
    },
    **{
        f"{size // 1000} KB arrays to batches": Work(
            ROWS_OF[size],
            {
                "flowdsl": partial(_our_batches, size),
                "flowdsl, 2 workers": partial(_our_batches_in_workers, size),
                "plain lmdb": partial(_plain_batches, size),
                "tensorpack": partial(_tensorpack_batches, size),
                "LitData": partial(elsewhere.litdata_batches, size),
                "MosaicML Streaming": partial(elsewhere.mosaic_batches, size),
                "Hugging Face datasets": partial(elsewhere.hugging_face_batches, size),
            },
            goal=1.3 if size == LARGE else 2.0,
            of="tensorpack",
        )
        for size in ROWS_OF
    },
    **formats.WORKS,
    "10 KB records": Work(
        RECORDS,
        {"flowdsl": _our_records, "tf.data": _tf_data_records, "Grain": _grain_records},
    ),
    "rows of a table": Work(
        TABLE,
        {
            "flowdsl": _our_table,
            "pyarrow": _pyarrow_table,
            "Ray Data": _ray_table,
            "Grain": _grain_table,
        },
    ),
    "JPEG files to batches": Work(
        photographs.FILES,
        {
            "flowdsl": _our_files,
            "DataLoader": _loader_files,
            "SPDL": elsewhere.spdl_images,
            "SPDL, decode_image": partial(elsewhere.spdl_images, elsewhere.read_image),
            "Grain": _grain_files,
            "tf.data": partial(_tf_data, False),
        },
    ),
    "stored JPEGs to batches": Work(
        photographs.FILES,
        {
            "flowdsl": _our_images_in_lmdb,
            "DataLoader": _loader_lmdb,
            "Grain": _grain_array_record,
            "tf.data": partial(_tf_data, True),
        },
    ),
}


def main() -> None:
    run("bench.storage", __doc__, "rows", WORKS, _NEEDS | formats.NEEDS, Path("out/storage.json"))


if __name__ == "__main__":
    main()

"""The contestants: each delivers the batches of a work, from two processes, as it does it best.

A contestant's packages are imported when it is its turn, so that those which are not installed are
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from bench import photographs
from bench.prototype import batches
from bench.works import WORKS, Row, Work

PROCS = 2

Batches: TypeAlias = Any
"""An iterator over batches; some have a ``close``."""
Passes: TypeAlias = Callable[[], Batches]
"""Begins a pass over the rows; a contestant's second pass may go on with its workers."""


@attrs.frozen
class Contestant:
    """One way to deliver the batches of a work, each a pair of arrays."""

    name: str
    package: str
    orderly: bool
    """It delivers rows in their order, and a pass has an end."""
    prepare: Callable[[Work, int], Passes]
    """For so many rows; what it imports is imported here."""
    works: tuple[str, ...] | None = None
    """The works that it takes part in; None for all."""
    exact: bool = True
    """It runs the function itself, and not one of its own that does the like."""

    def takes_part(self, work: str) -> bool:
        """Whether it delivers this work."""
        return self.works is None or work in self.works


def _flowdsl(work: Work, rows: int) -> Passes:
    flow = work.rows(rows).batch(work.batch).prefetch(procs=PROCS)
    return lambda: iter(flow)


def _flowdsl_in_threads(work: Work, rows: int) -> Passes:
    flow = work.rows(rows).batch(work.batch).prefetch(threads=PROCS)
    return lambda: iter(flow)


def _prototype(work: Work, rows: int) -> Passes:
    """As the rows are ready, without end, and each batch only until the next."""
    return lambda: batches(work, PROCS)


def tf_dataset(work: Work, rows: int) -> Any:
    """A tf.data dataset: its own kernels for files, JPEG and images, which decode only the crop."""
    tf: Any = import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(PROCS)
    tf.config.threading.set_inter_op_parallelism_threads(PROCS)
    crops = [photographs.crop(k) for k in range(photographs.FILES)]
    files, windows = tf.constant(photographs.names()), tf.constant([crop[:4] for crop in crops])
    flips = tf.constant([crop[4] for crop in crops])

    def shrunk(i: Any) -> tuple[Any, Any]:
        x = tf.io.decode_jpeg(tf.io.read_file(files[i % photographs.FILES]), channels=3)
        x = tf.image.resize(x, (photographs.SIZE, photographs.SIZE), antialias=True)
        return tf.cast(tf.round(x), tf.uint8), i

    def read(i: Any) -> tuple[Any, Any]:
        k = i % photographs.FILES
        x = tf.io.decode_and_crop_jpeg(tf.io.read_file(files[k]), windows[k], channels=3)
        x = tf.image.resize(x, (photographs.SIZE, photographs.SIZE))
        x = tf.cond(flips[k], lambda: x[:, ::-1], lambda: x)
        return tf.cast(tf.round(x), tf.uint8), i

    func = shrunk if work.name == WORKS["files"].name else read
    dataset = tf.data.Dataset.range(rows).map(func, num_parallel_calls=PROCS, deterministic=True)
    return dataset.batch(work.batch).prefetch(tf.data.AUTOTUNE)


def _tf_data(work: Work, rows: int) -> Passes:
    dataset = tf_dataset(work, rows)
    return lambda: dataset.as_numpy_iterator()


def _stacked(rows: list[Row]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    arrays, numbers = zip(*rows, strict=True)
    return np.stack(arrays), np.array(numbers)


@attrs.frozen
class _Dataset:
    """What a DataLoader takes: any object with a length and rows by number."""

    read: Callable[[int], Row]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, i: int) -> Row:
        return self.read(i)


def _data_loader(collate: Callable[[list[Row]], Any] | None) -> Callable[[Work, int], Passes]:
    def prepare(work: Work, rows: int) -> Passes:
        data: Any = import_module("torch.utils.data")
        import_module("torch").set_num_threads(1)
        loader = data.DataLoader(
            _Dataset(work.read, rows),
            batch_size=work.batch,
            num_workers=PROCS,
            collate_fn=collate,
            persistent_workers=True,
        )
        return lambda: iter(loader)

    return prepare


def _grain(work: Work, rows: int) -> Passes:
    grain: Any = import_module("grain.python")
    import_module("absl.flags").FLAGS.mark_as_parsed()  # Grain reads flags of absl
    flow = grain.MapDataset.range(rows).map(work.read).batch(work.batch)
    read = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    options = grain.MultiprocessingOptions(num_workers=PROCS)
    flow = flow.to_iter_dataset(read_options=read).mp_prefetch(options)
    return lambda: iter(flow)


def _tensorpack(work: Work, rows: int) -> Passes:
    """Map and batch in workers: as the batches are ready, without end, one pass into the next."""
    dataflow: Any = import_module("tensorpack.dataflow")

    class Numbers(dataflow.DataFlow):  # type: ignore[misc]  # its base is found when it is its turn
        def __len__(self) -> int:
            return rows

        def __iter__(self) -> Iterator[list[int]]:
            return ([i] for i in range(rows))

    def read(point: list[int]) -> list[Any]:
        return list(work.read(point[0]))

    queue = 4 * PROCS * work.batch
    runner = dataflow.MultiProcessMapAndBatchDataZMQ(Numbers(), PROCS, read, work.batch, queue)
    runner.reset_state()
    return lambda: iter(runner)


OURS = Contestant("flowdsl", "flowdsl", True, _flowdsl)

LARGE = ("uint8", "float32", "fresh-uint8", "fresh-float32", "jpeg", "files", "lmdb")
"""Works whose rows are large, so that memory is what counts."""

CONTESTANTS = {
    "flowdsl": OURS,
    "flowdsl-threads": Contestant(
        "flowdsl, threads", "flowdsl", True, _flowdsl_in_threads, ("jpeg", "files", "lmdb")
    ),
    "prototype": Contestant("a bare prototype", "numpy", False, _prototype, LARGE),
    "loader-numpy": Contestant("DataLoader (numpy)", "torch", True, _data_loader(_stacked)),
    "loader": Contestant("DataLoader", "torch", True, _data_loader(None)),
    "grain": Contestant("Grain mp", "grain", True, _grain),
    "tensorpack": Contestant("tensorpack", "tensorpack", False, _tensorpack),
    "tf.data": Contestant("tf.data", "tensorflow", True, _tf_data, ("jpeg", "files"), exact=False),
}

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

import flowdsl as fl
from bench.works import Row, Work

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


def _flowdsl(work: Work, rows: int) -> Passes:
    flow = fl.from_range(rows).map(work.read).batch(work.batch).prefetch(procs=PROCS)
    return lambda: iter(flow)


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

CONTESTANTS = {
    "flowdsl": OURS,
    "loader-numpy": Contestant("DataLoader (numpy)", "torch", True, _data_loader(_stacked)),
    "loader": Contestant("DataLoader", "torch", True, _data_loader(None)),
    "grain": Contestant("Grain mp", "grain", True, _grain),
    "tensorpack": Contestant("tensorpack", "tensorpack", False, _tensorpack),
}

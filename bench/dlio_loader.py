"""The data loader that DLIO runs flowdsl with: see ``bench/dlio.py``.

DLIO names a loader by its class, and asks it for the batches of one epoch after another. Its own
loaders read each file, and return the same small array in the place of what was read; so does this
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl

_base: Any = import_module("dlio_benchmark.data_loader.base_data_loader")

Image = NDArray[np.uint8]


class FlowLoader(_base.BaseDataLoader):  # type: ignore[misc]  # DLIO has no types
    """Reads the samples of DLIO in worker processes."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, "flowdsl")
        self._epochs: Iterator[Any] = iter(())

    def read(self) -> None:
        """Make the chain; DLIO calls this once, before the first epoch."""
        args = self._args
        image = np.asarray(args.resized_image, np.uint8)
        if self.format_type.value == "npz":
            samples = [args.train_global_index_map[i] for i in range(self.num_samples)]
            rows: Any = fl.from_items(samples).map(partial(_read_npz, image))
            batches = rows.batch(self.batch_size, drop_remainder=True)
        else:
            rows = fl.from_tfrecord([str(path) for path in args.file_list_train])
            batches = rows.shuffle(seed=args.seed).batch(
                self.batch_size, drop_remainder=True, collate=partial(_decoded, image)
            )
        flow = batches.prefetch(procs=args.read_threads)
        self._epochs = iter(flow.epochs(args.epochs))

    def next(self) -> Iterator[Any]:
        """Yield the batches of the next epoch."""
        yield from next(self._epochs)

    def finalize(self) -> None:
        """Do nothing: workers serve the next epoch."""


def _read_npz(image: Image, sample: tuple[str, int]) -> Image:
    path, number = sample
    with np.load(path) as file:
        file["x"][..., number]
    return image


def _decoded(image: Image, records: list[bytes]) -> Image:
    return image

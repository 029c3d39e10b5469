"""Contestants of ``bench.storage`` that are installed by hand: see bench/README.md.

Each is used as its documentation shows, and reads its own format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import flowdsl as fl
from bench.rates import Pass
from bench.stored import (
    BATCH,
    PROCS,
    ROWS_OF,
    SIDE,
    array,
    each_image,
    each_once,
    image_names,
    stored,
)


def litdata_batches(size: int) -> Pass:
    def write(path: Path) -> None:
        module: Any = import_module("litdata")
        rows, numbers = partial(array, size), list(range(ROWS_OF[size]))
        module.optimize(rows, numbers, output_dir=str(path), chunk_bytes="64MB", num_workers=1)

    litdata: Any = import_module("litdata")
    dataset = litdata.StreamingDataset(stored(f"litdata-{size}", write), shuffle=False)
    loader = litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    return each_once(size, lambda: iter(loader), lambda batch: batch)


def hugging_face_batches(size: int) -> Pass:
    """Arrow tables in mapped files, as arrays of NumPy."""
    datasets: Any = import_module("datasets")

    def write(path: Path) -> None:
        features = datasets.Features({"x": datasets.Array2D((1, size), "uint8")})
        rows = datasets.Dataset.from_dict({"i": range(ROWS_OF[size])})
        kept = rows.map(
            lambda row: {"x": array(size, row["i"])[None]}, features=features, remove_columns="i"
        )
        kept.save_to_disk(str(path))

    rows = datasets.load_from_disk(stored(f"datasets-{size}", write))
    rows = rows.with_format("numpy", dtype=np.uint8)
    return each_once(size, lambda: rows.iter(batch_size=BATCH), lambda batch: batch["x"])


def mosaic_batches(size: int) -> Pass:
    def write(path: Path) -> None:
        module: Any = import_module("streaming")
        with module.MDSWriter(out=str(path), columns={"x": f"ndarray:uint8:{size}"}) as out:
            for i in range(ROWS_OF[size]):
                out.write({"x": array(size, i)})

    streaming: Any = import_module("streaming")
    dataset = streaming.StreamingDataset(
        local=stored(f"mosaic-{size}", write), shuffle=False, batch_size=BATCH
    )
    loader = streaming.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    return each_once(size, lambda: iter(loader), lambda batch: batch["x"])


def spdl_images(decode: Callable[[str], Any] | None = None) -> Pass:
    """Its pipeline of threads: with its own decoder of batches, or a function for each image."""
    pipeline: Any = import_module("spdl.pipeline")
    io: Any = import_module("spdl.io")

    def batch_of(paths: list[str]) -> Any:
        if decode is not None:
            return np.stack([decode(path) for path in paths])
        return io.to_numpy(io.load_image_batch(paths, width=SIDE, height=SIDE, pix_fmt="rgb24"))

    def begin() -> Iterator[Any]:
        chain = pipeline.PipelineBuilder().add_source(image_names()).aggregate(BATCH)
        built = chain.pipe(batch_of, concurrency=PROCS).add_sink(2).build(num_threads=PROCS)
        with built.auto_stop():
            yield from built

    return each_image(begin)


def read_image(path: str) -> Any:
    """What each contestant with a function of the user's runs for an image."""
    return fl.decode_image(Path(path).read_bytes(), resize=(SIDE, SIDE))

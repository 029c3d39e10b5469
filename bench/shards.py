"""Lines a second of 64 text files, 16 of them in turn: by flowdsl and by tf.data.

python -m bench.shards
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import flowdsl as fl
from bench.rates import Pass, Work, run

SHARDS, CYCLE, BLOCK, BATCH = 64, 16, 4, 64


@cache
def shards() -> list[str]:
    """Files of 500 to 1,500 lines, each of 20 to 200 characters."""
    folder = Path(tempfile.gettempdir()) / "flowdsl-bench-shards"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz      ", np.uint8)
    paths = [folder / f"{k:02}.txt" for k in range(SHARDS)]
    for path in paths:
        sizes = rng.integers(20, 200, rng.integers(500, 1500))
        path.write_bytes(b"".join(rng.choice(letters, n).tobytes() + b"\n" for n in sizes))
    return [str(path) for path in paths]


@cache
def expected() -> list[str]:
    """The lines in their order: a file that has ended is replaced at the next turn of its place."""
    waiting = (iter(Path(path).read_text().splitlines()) for path in shards())
    places = deque[Iterator[str] | None]([None] * CYCLE)
    found = list[str]()
    while places:
        lines = places.popleft() or next(waiting, None)
        if lines is not None:
            block = list(islice(lines, BLOCK))
            found += block
            places.append(lines if len(block) == BLOCK else None)
    return found


def _checked(begin: Pass, of_batches: bool = False) -> Pass:
    """The passes of a contestant, which has shown that its lines are the right ones, in order."""
    found = [x for batch in begin() for x in batch] if of_batches else list(begin())
    lines = [x.decode() if isinstance(x, bytes) else x for x in found]
    if lines != expected():
        raise SystemExit(f"{len(lines)} lines came, or in another order, of {len(expected())}")
    return begin


def _lines(path: str) -> Iterator[str]:
    with Path(path).open() as file:
        for line in file:
            yield line[:-1]


def _opened() -> Any:
    return fl.from_items(shards()).interleave_map(_lines, CYCLE, BLOCK)


def _by_number() -> Any:
    return fl.interleave([fl.from_text(path) for path in shards()], cycle=CYCLE, block=BLOCK)


def _tf() -> Any:
    tf: Any = import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    files = tf.data.Dataset.from_tensor_slices(shards())
    return files.interleave(tf.data.TextLineDataset, cycle_length=CYCLE, block_length=BLOCK)


def _rows(make: Callable[[], Any]) -> Pass:
    flow = make()
    return _checked(lambda: flow)


def _batches(make: Callable[[], Any]) -> Pass:
    flow = make().batch(BATCH)
    return _checked(lambda: flow, of_batches=True)


def _in_workers() -> Pass:
    flow = _by_number().batch(BATCH).prefetch(procs=2)
    return _checked(lambda: flow, of_batches=True)


def _tf_rows() -> Pass:
    dataset = _tf()
    return _checked(lambda: dataset.as_numpy_iterator())


def _tf_batches() -> Pass:
    dataset = _tf().batch(BATCH).prefetch(8)
    return _checked(lambda: dataset.as_numpy_iterator(), of_batches=True)


WORKS: dict[str, Work] = {
    "lines": Work(
        len(expected()),
        {
            "flowdsl": partial(_rows, _opened),
            "flowdsl, by number": partial(_rows, _by_number),
            "tf.data": _tf_rows,
        },
    ),
    "batches": Work(
        len(expected()),
        {
            "flowdsl": partial(_batches, _opened),
            "flowdsl, by number": partial(_batches, _by_number),
            "flowdsl, 2 workers": _in_workers,
            "tf.data": _tf_batches,
        },
    ),
}


def main() -> None:
    run("bench.shards", __doc__, "lines", WORKS, {"tf.data": "tensorflow"}, Path("out/shards.json"))


if __name__ == "__main__":
    main()

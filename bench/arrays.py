"""Rows a second of shuffled batches of arrays in memory: by flowdsl, its peers, NumPy by hand.

python -m bench.arrays
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench.rates import Pass, Work, run

ROWS = 200_000
COLUMNS: dict[str, NDArray[Any]] = {
    "x": np.random.default_rng(0).random((ROWS, 10), np.float32),
    "y": np.arange(ROWS),
}
"""Features and a number that identifies the row."""


def _checked(begin: Pass) -> Pass:
    """The passes of a contestant that has shown that each row came once, in another order."""
    batches: Any = list(begin())
    x, y = (np.concatenate([np.asarray(batch[name]) for batch in batches]) for name in COLUMNS)
    if not np.array_equal(np.sort(y), COLUMNS["y"]) or np.array_equal(y, COLUMNS["y"]):
        raise SystemExit("rows are missing, came twice, or came in order")
    if not np.array_equal(x, COLUMNS["x"][y]):
        raise SystemExit("x came with the y of another row")
    return begin


def _flow(n: int, threads: int = 0) -> Pass:
    flow: Any = fl.from_items(COLUMNS).shuffle(seed=1).batch(n)
    if threads:
        flow = flow.prefetch(threads=threads)
    return _checked(lambda: flow.epoch(0))


def _by_hand(n: int) -> Pass:
    def batches() -> Iterator[dict[str, Any]]:
        order = np.random.default_rng(1).permutation(ROWS)
        for i in range(0, ROWS, n):
            chosen = order[i : i + n]
            yield {name: column[chosen] for name, column in COLUMNS.items()}

    return _checked(batches)


def _tf_data(n: int) -> Pass:
    tf: Any = import_module("tensorflow")
    data = tf.data.Dataset.from_tensor_slices(COLUMNS).shuffle(ROWS, seed=1).batch(n).prefetch(2)
    return _checked(data.as_numpy_iterator)


class _Rows:
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {name: column[i] for name, column in COLUMNS.items()}


def _loader(n: int) -> Pass:
    loader: Any = import_module("torch.utils.data").DataLoader(_Rows(), n, shuffle=True)
    return _checked(lambda: loader)


def _grain(n: int) -> Pass:
    grain: Any = import_module("grain.python")
    rows = grain.MapDataset.source(_Rows()).shuffle(seed=1).batch(n)
    read = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return _checked(lambda: iter(rows.to_iter_dataset(read)))


def _work(n: int) -> Work:
    contestants: dict[str, Callable[[int], Pass]] = {
        "flowdsl": _flow,
        "ahead": partial(_flow, threads=1),
        "tf.data": _tf_data,
        "loader": _loader,
        "grain": _grain,
        "by hand": _by_hand,
    }
    of: dict[str, Callable[[], Pass]] = {
        who: partial(prepare, n) for who, prepare in contestants.items()
    }
    return Work(ROWS, of, goal=0.5, of="by hand")


WORKS = {f"batches of {n}": _work(n) for n in (32, 256)}

NEEDS = {"tf.data": "tensorflow", "loader": "torch", "grain": "grain"}


def main() -> None:
    run("bench.arrays", __doc__, "rows", WORKS, NEEDS, Path("out/arrays.json"))


if __name__ == "__main__":
    main()

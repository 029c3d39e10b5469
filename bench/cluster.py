"""Rows a second from a Ray cluster: by flowdsl, by Ray Data, and by flowdsl's own processes.

python -m bench.cluster

A turn starts a cluster on this machine. "here": it has one node, where the consumer runs. "there":
the consumer's node has no CPUs for workers, and another node has two; what comes from there goes
through the object stores of both nodes, on the same two cores.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

import flowdsl as fl
from bench import works
from bench.rates import Pass, Work, run

WORKERS = 2
Where: TypeAlias = Literal["here", "there"]


def _cluster(where: Where) -> None:
    """Start a cluster and connect to it, until this process exits."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray: Any = import_module("ray")
    cluster: Any = import_module("ray.cluster_utils").Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": WORKERS if where == "here" else 0,
            "object_store_memory": 1 << 30,
            "include_dashboard": False,
        },
    )
    if where == "there":
        cluster.add_node(num_cpus=WORKERS, object_store_memory=1 << 30)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    atexit.register(cluster.shutdown)
    atexit.register(ray.shutdown)


def _rows(func: Callable[[int], Any], rows: int, batch: int) -> fl.Flow[Any, Any]:
    return fl.from_range(rows).map(func).batch(batch)


def _flowdsl(func: Callable[[int], Any], rows: int, batch: int, where: Where) -> Pass:
    _cluster(where)
    flow = _rows(func, rows, batch).prefetch(actors=WORKERS)
    return lambda: iter(flow)


def _processes(func: Callable[[int], Any], rows: int, batch: int) -> Pass:
    flow = _rows(func, rows, batch).prefetch(procs=WORKERS)
    return lambda: iter(flow)


def _ray_data(
    func: Callable[[int], Any], rows: int, batch: int, where: Where, ordered: bool
) -> Pass:
    _cluster(where)
    data: Any = import_module("ray.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = ordered

    def made(columns: dict[str, Any]) -> dict[str, Any]:
        arrays, numbers = zip(*(func(int(i)) for i in columns["id"]), strict=True)
        return {"x": np.stack(arrays), "i": np.array(numbers)}

    blocks = max(WORKERS, min(200, rows // batch))
    dataset = data.range(rows, override_num_blocks=blocks).map_batches(made, batch_size=batch)

    def passed() -> Iterator[Any]:
        yield from dataset.iter_batches(batch_size=batch, prefetch_batches=4)

    return passed


def _work(func: Callable[[int], Any], rows: int, batch: int) -> Work:
    of = func, rows, batch
    return Work(
        rows,
        {
            "flowdsl": partial(_flowdsl, *of, "here"),
            "flowdsl, processes": partial(_processes, *of),
            "Ray Data": partial(_ray_data, *of, "here", False),
            "Ray Data, in order": partial(_ray_data, *of, "here", True),
            "flowdsl, there": partial(_flowdsl, *of, "there"),
            "Ray Data, there": partial(_ray_data, *of, "there", False),
            "Ray Data, in order, there": partial(_ray_data, *of, "there", True),
        },
    )


WORKS = {
    "tiny rows, batch 64": _work(works.tiny, 64_000, 64),
    "150 KB images that a function allocates, uint8, batch 32": _work(
        partial(works.fresh, "uint8"), 3_200, 32
    ),
    "JPEG files cut to 224x224x3, batch 32": _work(works.jpeg, 960, 32),
    "a millisecond of Python a row, batch 32": _work(partial(works.spin, 20_000), 1_600, 32),
}

if __name__ == "__main__":
    needs = {who: "ray" for work in WORKS.values() for who in work.contestants if "proc" not in who}
    run("bench.cluster", __doc__, "rows", WORKS, needs, Path("out/cluster.json"))

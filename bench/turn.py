"""One contestant's turn, in a process of its own: ``python -m bench.turn tiny flowdsl rate 1.5``.

A process for each turn, so that none inherits another's threads, and each start is a cold one. What
was measured is printed as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench.contestants import CONTESTANTS, PROCS, Contestant
from bench.starting import faults, idle, programs, workers
from bench.works import ROWS, WORKS, Work, python_work

WARM_BATCHES = 20


def work_of(name: str) -> Work:
    """``python:5000`` is the work whose rows take 5000 turns of a loop; ``timed:5000`` tells it."""
    kind, _, loops = name.partition(":")
    return python_work(int(loops), kind == "timed") if loops else WORKS[kind]


def rate(work: Work, contestant: Contestant, seconds: float) -> dict[str, float]:
    """Rows a second, for so long, after the first batches."""
    batches = contestant.prepare(work, ROWS)()
    numbers = [np.array(batch[1]) for batch in islice(batches, WARM_BATCHES)]
    came: list[float] = []
    began = now = time.perf_counter()
    while now - began < seconds:
        numbers.append(np.array(next(batches)[1]))
        now = time.perf_counter()
        came.append(now)
    _check_numbers(np.concatenate(numbers), contestant.orderly)
    _leave(batches)
    return {"rate": rate_of(came) * work.batch}


def rate_of(came: Sequence[float]) -> float:
    """Batches a second, from the times at which they came: the slope of the line through them.

    Where many come at a time, a count up to the last one misses those that are nearly done: of
    tasks of 0.15 seconds in two processes, 2.2% of 4.5 seconds.
    """
    return float(np.polyfit(np.array(came) - came[0], np.arange(len(came)), 1)[0])


def whole(work: Work, contestant: Contestant, batches: float) -> dict[str, float]:
    """Rows a second over whole passes, their start and their end included."""
    rows = int(batches) * work.batch
    passes = contestant.prepare(work, rows)
    found: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        if sum(len(batch[1]) for batch in passes()) != rows:
            raise SystemExit(f"{contestant.name}: rows are missing")
        found.append(rows / (time.perf_counter() - began))
    return {"first": found[0], "later": median(found[1:])}


def busy(work: Work, contestant: Contestant, seconds: float) -> dict[str, float]:
    """The share of the workers' time that the function had; a busy machine is no part of it."""
    batches = contestant.prepare(work, ROWS)()
    for _ in islice(batches, 4 * WARM_BATCHES):
        pass
    began = now = time.perf_counter()
    spent = 0.0
    while now - began < seconds:
        spent += float(np.asarray(next(batches)[0]).sum())
        now = time.perf_counter()
    _leave(batches)
    return {"share": spent / (PROCS * (now - began))}


def check(work: Work, contestant: Contestant, batches: float) -> dict[str, float]:
    """Some batches: each row once, and its array the right one; all of them, where a pass ends."""
    rows = int(batches) * work.batch
    passes = contestant.prepare(work, rows if contestant.orderly else ROWS)
    numbers: list[int] = []
    for arrays, labels in islice(passes(), None if contestant.orderly else int(batches)):
        for array, number in zip(np.asarray(arrays), np.asarray(labels), strict=True):
            numbers.append(int(number))
            if not _alike(array, work.read(int(number))[0], contestant.exact):
                raise SystemExit(f"{contestant.name}: row {number} is another")
    if len(numbers) != rows:
        raise SystemExit(f"{contestant.name}: {len(numbers)} rows came, of {rows}")
    _check_numbers(np.array(numbers), contestant.orderly)
    return {"rows": rows}


def _alike(x: NDArray[Any], y: NDArray[Any], exact: bool) -> bool:
    """Equal; or as two decoders give one picture."""
    if exact or x.shape != y.shape or x.dtype != y.dtype:
        return np.array_equal(x, y)
    return float(np.abs(x.astype(float) - y).mean()) < 8


def first(work: Work, contestant: Contestant, batches: float) -> dict[str, float]:
    """Seconds to the first batch of a first pass, and of later passes where there are any."""
    passes = contestant.prepare(work, int(batches) * work.batch)
    seconds: list[float] = []
    for _ in range(4 if contestant.orderly else 1):
        began = time.perf_counter()
        one = passes()
        next(one)
        seconds.append(time.perf_counter() - began)
        for _ in islice(one, int(batches)):
            pass
    return {"cold": seconds[0], **({"warm": median(seconds[1:])} if seconds[1:] else {})}


def memory(work: Work, contestant: Contestant, rows: float) -> dict[str, float]:
    """The memory of consumer and workers, in MB, in the midst of a shuffled pass over many rows."""
    flow = (
        fl.from_range(int(rows))
        .shuffle()
        .map(work.read)
        .batch(work.batch)
        .repeat()
        .prefetch(procs=PROCS)
    )
    with iter(flow.prefetch(procs=PROCS)) as run:
        for _ in islice(run, 2000):
            pass
        gc.collect()
        workers = [_megabytes(pid) for pid in _descendants(os.getpid())]
        return {"consumer": _megabytes(), "worker": max(workers)}


def flat(work: Work, contestant: Contestant, rows: float) -> dict[str, float]:
    """Nanoseconds a row, of as many rows from sources of different lengths."""
    flow = fl.from_range(int(rows)).shuffle().map(work.read).batch(work.batch).repeat()
    found: dict[str, float] = {}
    for name, some in (("inline", flow), ("workers", flow.prefetch(procs=PROCS))):
        with iter(some) as run:
            for _ in islice(run, 2000):
                pass
            began = time.perf_counter()
            for _ in islice(run, 40_000):
                pass
            found[name] = (time.perf_counter() - began) / (40_000 * work.batch) * 1e9
    return found


def limit(work: Work, contestant: Contestant, seconds: float) -> dict[str, float]:
    """Rows a second of two plain processes that make rows and deliver none."""
    processes: Any = import_module("multiprocessing").get_context("spawn")
    ready, results = processes.Barrier(PROCS), processes.Queue()
    workers = [
        processes.Process(target=_plain, args=(work, seconds, ready, results)) for _ in range(PROCS)
    ]
    for worker in workers:
        worker.start()
    rates = list[float]()
    while len(rates) < PROCS:
        with suppress(Empty):
            rates.append(float(results.get(timeout=1)))
        if any(worker.exitcode for worker in workers):
            raise SystemExit("a process of the limit has failed")
    for worker in workers:
        worker.join()
    return {"rate": sum(rates)}


def alone(work: Work, contestant: Contestant, seconds: float) -> dict[str, float]:
    """Rows a second of one process that makes rows and delivers none."""
    work.read(0)
    began = now = time.perf_counter()
    rows = 0
    while now - began < seconds:
        work.read(rows)
        rows += 1
        now = time.perf_counter()
    return {"rate": rows / (now - began)}


def _plain(work: Work, seconds: float, ready: Any, results: Any) -> None:
    work.read(0)
    ready.wait()
    began, rows = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for i in range(rows, rows + work.batch):
            work.read(i)
        rows += work.batch
    results.put(rows / (time.perf_counter() - began))


def _check_numbers(rows: NDArray[Any], ordered: bool) -> None:
    right = np.arange(len(rows))
    if ordered and not np.array_equal(rows, right):
        raise SystemExit(f"row {rows[rows != right][0]} came in the place of another")
    if len(np.unique(rows)) < len(rows):
        raise SystemExit("a row came twice")


def _leave(batches: Iterator[Any]) -> None:
    close = getattr(batches, "close", None)
    if close is not None:
        close()


def _descendants(pid: int) -> list[int]:
    """Of all generations: workers are forked by a process of their own."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_descendants(int(child))]
    return found


def _megabytes(pid: int | None = None) -> float:
    """Its proportional share of what is in memory: pages that several map count once."""
    lines = Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


STEADY = (rate, whole, busy, check, first, memory, flat, limit, alone)
TURNS = {f.__name__: f for f in (*STEADY, programs, workers, idle, faults)}

if __name__ == "__main__":
    work, contestant, turn, amount = sys.argv[1:]
    found = TURNS[turn](work_of(work), CONTESTANTS[contestant], float(amount))
    print(json.dumps(found), flush=True)

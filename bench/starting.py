"""What it takes until the first element, and what workers hold while they wait."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

import flowdsl as fl
from bench.contestants import PROCS, Contestant
from bench.works import Work

PROGRAMS = {
    "numpy": "import numpy",
    "numpy-zmq": "import numpy, zmq",
    "flowdsl": "import flowdsl",
    "first": "import flowdsl as fl\n"
    "run = iter(fl.from_range(10_000).map(abs).batch(64).prefetch(procs=2))\n"
    "next(run)",
}
"""Programs that are timed from their start to their last line."""

MANY = 25


def programs(work: Work, contestant: Contestant, rounds: float) -> dict[str, float]:
    """Seconds until each program is at its end, in turn; their modules are compiled already."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(1 + int(rounds)):
            for name, program in PROGRAMS.items():
                timed = f"{program}\nimport time; print(time.time())"
                began = time.time()
                done = subprocess.run(
                    [sys.executable, "-c", timed], env=environment, capture_output=True, check=True
                )
                seconds[name].append(float(done.stdout) - began)
    return {name: median(found[1:]) for name, found in seconds.items()}


def workers(work: Work, contestant: Contestant, rounds: float) -> dict[str, float]:
    """Seconds to the first element of a further flow, with 2 workers and with many."""
    found: dict[str, list[float]] = {"two": [], "many": []}
    for _ in range(1 + int(rounds)):
        for name, procs in (("two", 2), ("many", MANY)):
            began = time.perf_counter()
            with iter(fl.from_range(10_000).map(abs).prefetch(procs=procs)) as run:
                next(run)
                found[name].append(time.perf_counter() - began)
    return {name: median(seconds[1:]) for name, seconds in found.items()}


def idle(work: Work, contestant: Contestant, procs: float) -> dict[str, float]:
    """The private memory of a worker that has nothing to do, in MB."""
    with iter(fl.from_range(1 << 40).map(abs).prefetch(procs=int(procs))) as run:
        next(run)
        time.sleep(1.0)  # until they have done what they may
        held = [_private(pid) for pid in workers_of(os.getpid())]
    return {"private": median(held)}


def faults(work: Work, contestant: Contestant, batches: float) -> dict[str, float]:
    """Page faults a row, of the workers and of the consumer, once both are at full speed."""
    flow = fl.from_range(1 << 40).map(work.read).batch(work.batch).prefetch(procs=PROCS)
    with iter(flow) as run:
        for _ in islice(run, 100):
            pass
        with _counted(_of_workers) as ours, _counted(_of_consumer) as consumer:
            for _ in islice(run, int(batches)):
                pass
    rows = int(batches) * work.batch
    return {"worker": ours() / rows, "consumer": consumer() / rows}


def workers_of(pid: int) -> list[int]:
    """The processes that have no further ones, of all generations: workers have a common parent."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += workers_of(child) or [child]
    return found


@contextmanager
def _counted(count: Callable[[], int]) -> Iterator[Callable[[], int]]:
    """Gives a function of how far it has counted since, up to the end of the context."""
    before, after = count(), list[int]()
    yield lambda: after[0] - before
    after.append(count())


def _of_workers() -> int:
    return sum(map(_minor_faults, workers_of(os.getpid())))


def _of_consumer() -> int:
    return _minor_faults(os.getpid())


def _minor_faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def _private(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return kilobytes / 1024

"""Rows a second by 1, 4, ... processes: by flowdsl, by DataLoader, by Grain.

python -m bench.cores
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import contestants
from bench.contestants import CONTESTANTS
from bench.rates import Pass, Work, run
from bench.works import WORKS as ROWS
from bench.works import Work as Rows
from bench.works import python_work

CORES = len(os.sched_getaffinity(0))
PROCESSES = [n for n in (1, 2, 4, 8, 12, 15, 31, 63) if n < max(CORES, 3)]
"""One core is left to the process that consumes the rows."""

WHO = ("flowdsl", "loader", "loader-numpy", "grain")

LOOPS = 5000
"""About 200 microseconds of Python."""


def _passes(rows: Rows, number: int, processes: int, who: str) -> Pass:
    contestants.PROCS = processes
    return CONTESTANTS[who].prepare(rows, number)


def _work(rows: Rows, each: int, processes: int) -> Work:
    """Passes of ``each`` batches for each process."""
    number = each * processes * rows.batch
    of: dict[str, Callable[[], Pass]] = {
        who: partial(_passes, rows, number, processes, who) for who in WHO
    }
    return Work(number, of)


_OF_NAME = {
    "tiny rows": (ROWS["tiny"], 1000),
    "new images": (ROWS["fresh-uint8"], 100),
    "200 µs of Python": (python_work(LOOPS), 60),
}

WORKS = {
    f"{name}, {processes} processes": _work(rows, each, processes)
    for name, (rows, each) in _OF_NAME.items()
    for processes in PROCESSES
}

NEEDS = {"loader": "torch", "loader-numpy": "torch", "grain": "grain"}


def main() -> None:
    run("bench.cores", __doc__, "rows", WORKS, NEEDS, Path("out/cores.json"))


if __name__ == "__main__":
    main()

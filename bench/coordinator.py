"""How far one coordinator carries: the real pool, with simulated workers that compute nothing.

python -m bench.coordinator --rows 100000000

The consumer's thread coordinates: it cuts a pass into tasks, submits them, and delivers results in
order. Simulated workers finish each task when the pool next waits, and report that each row took a
millisecond. So what is left is the pool itself: how many rows and tasks a second one thread
coordinates, for how many workers, and how many bytes a task costs on the wire.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

import flowdsl as fl
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Stage
from flowdsl.workers.backend import Done, Event, Result, Worker
from flowdsl.workers.pool import Pool
from flowdsl.workers.tasks import InputRows, TaskInput
from flowdsl.workers.wire import pickled

SECONDS_PER_ROW = 0.001


@attrs.frozen
class _Delivery:
    elements: Sequence[Any]
    nbytes: int = 0

    def open(self) -> Sequence[Any]:
        return self.elements

    def discard(self) -> None:
        """Hold nothing."""


class Simulated:
    """Workers that finish each task at once."""

    def __init__(self, rows_per_element: int) -> None:
        self.workers: list[Worker] = []
        self._rows = rows_per_element
        self._submitted = deque[tuple[Worker, TaskInput]]()
        self.tasks = self.nbytes = 0

    def start(self, count: int) -> None:
        self.workers += [Worker(f"{k}", ready=True) for k in range(len(self.workers), count)]

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        return None, 0

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        worker.held[task_input.task.number] = task_input
        self._submitted.append((worker, task_input))
        self.tasks += 1
        self.nbytes += len(pickled(task_input.task))

    def poll(self) -> list[Event]:
        events: list[Event] = []
        for worker, task_input in self._submitted:
            task = task_input.task
            count = task.stop - task.start
            seconds = count * self._rows * SECONDS_PER_ROW
            result = Result(
                task.number,
                returned=count,
                positions=None,
                filtered=0,
                skipped=[],
                failure=None,
                seconds=seconds,
                cpu=seconds,
                waited_for_core=0.0,
                times=[],
                costs={},
                settled=count,
            )
            events.append(Done(worker, result, _Delivery(range(count), 64 * count)))
        self._submitted.clear()
        return events

    def wake(self) -> None:
        """No thread waits."""

    def replace(self, worker: Worker) -> None:
        raise AssertionError("no worker dies")

    def dismiss(self, worker: Worker) -> None:
        self.workers.remove(worker)

    def park(self) -> bool:
        return False

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        return False

    def close(self) -> None:
        """Nothing to end."""


def coordinate(workers: int, rows: int, batch: int) -> tuple[float, Simulated]:
    """Return the seconds of a pass over so many rows, and the workers."""
    flow = fl.from_range(rows).map(abs).batch(batch).prefetch(procs=workers)
    stage = plan_of(flow.node).root
    assert isinstance(stage, Stage)
    simulated = Simulated(batch)
    pool = Pool(stage, (), simulated, lambda step, failed: None)
    began, delivered = time.perf_counter(), 0
    for _ in pool.elements(0):
        delivered += 1
    seconds = time.perf_counter() - began
    assert delivered == -(-rows // batch)
    return seconds, simulated


def main() -> None:
    """Print a table of workers, rows and tasks a second."""
    parser = argparse.ArgumentParser(prog="python -m bench.coordinator", description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 16, 64, 256])
    asked = parser.parse_args()
    table = Table(
        "workers", "rows a second", "tasks a second", "bytes a task", "rows a task",
        "busy with tasks as long as here", title=f"{asked.rows:,} rows in batches of {asked.batch}",
    )  # fmt: skip
    for workers in asked.workers:
        seconds, simulated = coordinate(workers, asked.rows, asked.batch)
        tasks = simulated.tasks / seconds
        each = asked.rows / simulated.tasks
        table.add_row(
            f"{workers}",
            f"{asked.rows / seconds:,.0f}",
            f"{tasks:,.0f}",
            f"{simulated.nbytes / simulated.tasks:.0f}",
            f"{each:,.0f}",
            f"{tasks * each * SECONDS_PER_ROW:,.0f} workers",
        )
    Console().print(table)


if __name__ == "__main__":
    main()

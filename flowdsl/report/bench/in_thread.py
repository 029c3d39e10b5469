"""A kind of worker for benches: it runs in the consumer's thread.

It uses the tasks, messages and shared memory of worker processes, without the sockets that carry
them. With two processes, the order of the work would depend on the load of the machine; so would
task sizes, if measured times set them. A bench must not depend on it.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import attrs

from flowdsl.executor.execute import executor_of
from flowdsl.plan.plan import Stage
from flowdsl.resources.worker_kinds import Label, WorkerKind
from flowdsl.workers.backend import Done, Event, Worker
from flowdsl.workers.processes import Sent
from flowdsl.workers.slabs import Slabs, Window
from flowdsl.workers.task_sizer import SECONDS_PER_TASK
from flowdsl.workers.tasks import BYTES_IN_FLIGHT, InputRows, TaskInput
from flowdsl.workers.wire import frames_of_rows, nbytes_of_frames, pickled, unpack
from flowdsl.workers.worker import run

IN_THREAD = WorkerKind(
    keyword="procs",  # takes the place of procs=n
    noun=Label("worker in this thread", "workers in this thread"),
    backend="flowdsl.report.bench.in_thread:InThread",
    mortal=False,
)

ELEMENTS_PER_TASK, BYTES_PER_TASK = 64, 1 << 20
"""Limits on the size of a task. Its data fits into the cache of the CPU: the speed of the memory
depends on what else the machine does."""


class InThread:
    """The worker of a stage, which does a task when the consumer waits for one."""

    def __init__(self, stage: Stage, time_operators: bool = False) -> None:
        self._window = Window()
        shared = (stage.workers.memory or BYTES_IN_FLIGHT) // 2
        self._slabs = Slabs(lambda number, fd: self._window.attach(number, os.dup(fd)), shared)
        self._executor = executor_of(
            stage.program, stage.end_to_end, self._slabs.allocate, time_operators
        )
        self._workers: list[Worker] = []
        self._tasks = deque[tuple[Worker, bytes, TaskInput]]()

    @property
    def workers(self) -> list[Worker]:
        return self._workers

    def start(self, count: int) -> None:
        while len(self._workers) < count:
            self._workers.append(Worker(f"worker {len(self._workers)}", ready=True))

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        frames = frames_of_rows(rows)
        return frames, nbytes_of_frames(frames)

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        worker.held[task_input.task.number] = task_input
        self._tasks.append((worker, pickled(task_input.task), task_input))

    def poll(self) -> list[Event]:
        if not self._tasks:
            return []
        worker, message, task_input = self._tasks.popleft()
        packed = task_input.packed
        rows: InputRows = unpack(packed[0], packed[1:]) if packed else []
        task = unpack(message)
        self._slabs.record_begun(task.number)
        head, content = run(self._executor, self._slabs, task, rows, classes=frozenset())
        result, extents, dropped_slabs = unpack(head)
        self._window.drop(dropped_slabs)
        nbytes = len(content) + self._window.nbytes(extents)
        # Report an invented duration in place of the measured one. The task sizer aims at
        # SECONDS_PER_TASK, so it chooses these task sizes whatever the clock says.
        share_of_limit = max(task_input.size / ELEMENTS_PER_TASK, nbytes / BYTES_PER_TASK)
        result = attrs.evolve(result, seconds=share_of_limit * SECONDS_PER_TASK)
        return [Done(worker, result, Sent(self._window, content, extents, nbytes))]

    def wake(self) -> None:
        """Do nothing: nothing waits."""

    def replace(self, worker: Worker) -> None:
        raise AssertionError("a thread does not die")

    def dismiss(self, worker: Worker) -> None:
        self._workers.remove(worker)

    def park(self) -> bool:
        return not self._tasks

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        return True

    def close(self) -> None:
        self._tasks.clear()

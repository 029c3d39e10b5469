"""A host: the actor of one machine, which runs flowdsl's own worker processes there.

The problem: workers on other machines, with the guarantees of worker processes. The naive way is an
actor for each worker. Ray may lose the reply to a finished call together with the actor, so after a
death nobody knows which task the worker had begun; to record that elsewhere would take a call for
each task. Each actor is also a new interpreter of 110 MB.

The choice: one actor for each machine, which starts worker processes as the consumer's process does
on its own machine. So shared memory, the record of the task begun, time limits, and replacements
are the same code. Ray need not handle the death of a worker: it reports only the end of a machine.

The host forwards bytes: it unpickles neither programs nor elements, so it imports no module of the
user. It serves one backend at a time: a thread talks to the workers, calls of the actor put
commands into a queue, and the call ``poll`` waits for what the workers report.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import attrs
import numpy as np
import ray
from numpy.typing import NDArray

from flowdsl.errors import FlowError, travelling
from flowdsl.ray.reservation import Reservation
from flowdsl.workers.backend import Died, Done, Event, Ready, Worker
from flowdsl.workers.process_environment import (
    HASH_SEED,
    apply_settings,
    hash_seed,
    settings_for_other_machines,
)
from flowdsl.workers.processes import Processes, Sent
from flowdsl.workers.tasks import TaskInput
from flowdsl.workers.wire import PackedStage, pickled, unpack

MAX_REPORTED = 64 << 20
"""``poll`` returns all results that have arrived, up to about this many bytes."""


@attrs.frozen
class Buffers:
    """Arrays as an argument of a call.

    Ray packs lists and arrays by msgpack, which other libraries patch so that it packs an array as
    a dict (``msgpack_numpy.patch``, which tensorpack calls). Ray pickles an object of a class.
    """

    arrays: list[NDArray[np.uint8]]


@attrs.frozen
class WorkerReady:
    """A report: a worker is ready for tasks."""

    number: int
    name: str


@attrs.frozen
class TaskDone:
    """A report: a worker has finished a task."""

    number: int
    result: bytes
    content: bytes
    buffers: list[NDArray[np.uint8]]


@attrs.frozen
class WorkerEnded:
    """A report: a worker has died."""

    number: int
    how: str
    begun: int | None
    """The number of the last task that it began."""


@attrs.frozen
class HostFailed:
    """A report: no worker of this host can continue."""

    error: bytes


class NoReport:
    """Ends the last ``poll`` of a backend that has been released."""


NO_REPORT = NoReport()

Report: TypeAlias = WorkerReady | TaskDone | WorkerEnded | HostFailed | NoReport


@attrs.frozen
class HostSetup:
    """The setup of a host, without the large arrays of the program."""

    stage: PackedStage
    """The stage, without its arrays."""
    max_bytes: int
    """The largest result that the object stores can hold."""
    folder: str = attrs.field(factory=os.getcwd)
    environment: dict[str, str] = attrs.field(
        factory=lambda: {**os.environ, HASH_SEED: hash_seed()}, repr=False
    )
    settings: dict[str, Any] = attrs.field(factory=settings_for_other_machines, repr=False)
    search_path: tuple[str, ...] = attrs.field(factory=lambda: tuple(sys.path))


class Host(Reservation):
    """The actor: runs the workers of one backend after another, and ends if none comes."""

    def __init__(self) -> None:
        super().__init__()
        if "OMP_NUM_THREADS" in os.environ and "RAY_JOB_ID" in os.environ:
            del os.environ["OMP_NUM_THREADS"]  # Ray has set it, not the user
        self._environment, self._path = dict(os.environ), list(sys.path)
        self._group: WorkerGroup | None = None
        self._reports = defaultdict[int, SimpleQueue[Report]](SimpleQueue[Report])
        self._released = set[int]()
        self._lock = threading.Lock()

    def missing(self, paths: list[str]) -> list[str]:
        """Return the files that this machine does not have."""
        return [path for path in paths if not Path(path).exists()]

    def serve(self, backend: int, setup: HostSetup, program_arrays: Buffers) -> None:
        """Prepare to run workers of a backend, and end the workers of the backend before."""
        self.release()
        self.hold()
        self._adopt(setup)
        try:
            with self._lock:
                reports = self._reports[backend]
            self._group = WorkerGroup(setup, program_arrays.arrays, reports, backend)
        except Exception as error:
            self._reports[backend].put(HostFailed(pickled(travelling(error))))

    def release(self) -> None:
        """End the workers; the host stays for another backend, for a limited time."""
        super().release()
        if (group := self._group) is not None:
            self._group = None
            group.command(group.close)
            with self._lock:
                self._released.add(group.backend)
                self._reports.pop(group.backend).put(NO_REPORT)  # ends a ``poll`` that waits

    def start(self, number: int) -> None:
        """Start a worker, which reports refer to by ``number``."""
        if (group := self._group) is not None:
            group.command(partial(group.start, number))

    def submit(self, number: int, task: bytes, frames: Buffers) -> None:
        """Submit a task to a worker, with the frames of its rows."""
        if (group := self._group) is not None:
            group.command(partial(group.submit, number, task, frames))

    def dismiss(self, number: int) -> None:
        """End a worker that holds no tasks."""
        if (group := self._group) is not None:
            group.command(partial(group.dismiss, number))

    def park(self) -> None:
        """Keep the workers for the next pass, for a limited time."""
        if (group := self._group) is not None:
            group.command(group.park)
            super().release()

    def resume(self) -> None:
        """Prepare the parked workers for another pass; the death of any is reported."""
        if (group := self._group) is not None:
            self.hold()
            group.command(group.resume)

    @ray.method(concurrency_group="reports")
    def poll(self, backend: int) -> list[Report]:
        """Wait for reports on the workers of a backend, and return them."""
        with self._lock:
            if backend in self._released:  # a late call would wait forever, and block later ones
                return []
            queue = self._reports[backend]
        reports = [queue.get()]
        nbytes = _nbytes(reports[0])
        while nbytes < MAX_REPORTED:
            try:
                reports.append(queue.get_nowait())
            except Empty:
                break
            nbytes += _nbytes(reports[-1])
        return [report for report in reports if report is not NO_REPORT]

    @ray.method(concurrency_group="life")
    def ping(self) -> None:
        """Return, which shows that this machine is alive."""

    def _adopt(self, setup: HostSetup) -> None:
        """Adopt the consumer's variables, folder and search path as far as this machine has them.

        Variables that the machine sets itself, such as ``PATH``, are kept.
        """
        os.environ.clear()
        os.environ.update({**setup.environment, **self._environment})
        known = set(self._path)
        sys.path[:] = [*self._path, *(path for path in setup.search_path if path not in known)]
        if os.path.isdir(setup.folder):
            os.chdir(setup.folder)


class WorkerGroup:
    """The worker processes of one backend on this machine, and the thread that talks to them."""

    def __init__(
        self,
        setup: HostSetup,
        arrays: list[NDArray[np.uint8]],
        reports: SimpleQueue[Report],
        backend: int,
    ) -> None:
        self.backend = backend
        self._max_bytes = setup.max_bytes
        packed = attrs.evolve(setup.stage, arrays=tuple(array.data for array in arrays))
        self._processes = Processes(packed)
        self._processes.start(0)
        self._workers: dict[int, Worker] = {}
        self._settings = setup.settings
        self._commands = SimpleQueue[Callable[[], None]]()
        self._reports = reports
        self._is_open = True
        threading.Thread(target=self._run, name="flowdsl-host", daemon=True).start()

    def command(self, command: Callable[[], None]) -> None:
        """Run one of the methods below in the thread of this group."""
        self._commands.put(command)
        self._processes.wake()

    def start(self, number: int) -> None:
        """Start a worker."""
        self._processes.start(len(self._processes.workers) + 1)
        self._workers[number] = self._processes.workers[-1]

    def submit(self, number: int, task: bytes, frames: Buffers) -> None:
        """Submit a task, unless the worker has died; its death was reported."""
        if (worker := self._workers.get(number)) is not None:
            views = [frame.data for frame in frames.arrays]
            self._processes.submit(worker, TaskInput(unpack(task), packed=views))

    def dismiss(self, number: int) -> None:
        """End a worker."""
        if (worker := self._workers.pop(number, None)) is not None:
            self._processes.dismiss(worker)

    def park(self) -> None:
        """Keep the workers for the next pass."""
        self._processes.park()

    def resume(self) -> None:
        """Continue with parked workers."""
        self._processes.resume()

    def close(self) -> None:
        """End the workers and the thread."""
        self._is_open = False
        self._processes.close()

    def _run(self) -> None:
        try:
            apply_settings(self._settings)  # some belong to a thread; workers get this one's
            while self._is_open:
                while self._is_open and not self._commands.empty():
                    self._commands.get()()
                for event in self._processes.poll() if self._is_open else ():
                    self._reports.put(self._report(event))
        except BaseException as error:
            self._reports.put(HostFailed(pickled(travelling(error))))

    def _report(self, event: Event) -> Report:
        worker = event.worker
        (number,) = (number for number, other in self._workers.items() if other is worker)
        if isinstance(event, Ready):
            return WorkerReady(number, worker.name)
        if isinstance(event, Died):
            self.dismiss(number)
            return WorkerEnded(number, event.how, event.begun)
        worker.held.pop(event.result.number, None)
        return self._done(number, event)

    def _done(self, number: int, event: Done) -> Report:
        sent = event.delivery
        assert isinstance(sent, Sent)
        done = TaskDone(
            number, pickled(event.result), sent.content, sent.window.buffers(sent.extents)
        )
        if _nbytes(done) > self._max_bytes:
            full = FlowError(
                f"prefetch: a result of {_nbytes(done):,} bytes does not fit in the object store "
                f"of Ray, which has {self._max_bytes:,}; make smaller batches, or start Ray with a "
                f"larger object_store_memory"
            )
            return HostFailed(pickled(full))
        return done


def _nbytes(report: Report) -> int:
    if not isinstance(report, TaskDone):
        return 0
    return len(report.content) + sum(buffer.nbytes for buffer in report.buffers)

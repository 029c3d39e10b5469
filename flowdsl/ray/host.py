"""A host: the actor of one machine, which runs flowdsl's own worker processes there.

The problem: workers on other machines, with the guarantees of worker processes. The naive way is an
actor for each worker. Ray may lose the reply to a finished call together with the actor, so after a
death nobody knows which task the worker had begun; a note of it must then survive elsewhere, at a
call for each task. Each actor is also a new interpreter of 110 MB.

The choice: one actor for each machine, which starts worker processes as the consumer's process does
on its own machine. So shared memory, the note of the task begun, time limits, and replacements are
the same code, a worker's death costs nothing of Ray, and Ray reports only the end of a machine.

The host forwards bytes: it unpickles neither programs nor elements, so it imports no module of the
user. One thread talks to the workers; calls of the actor put commands into a queue, and the call
``poll`` waits for what the workers report.
"""

from __future__ import annotations

import os
import sys
import threading
import time
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
from flowdsl.workers.backend import Died, Done, Event, Ready, Worker
from flowdsl.workers.processes import SECONDS_AT_REST, Processes, Sent
from flowdsl.workers.tasks import TaskInput
from flowdsl.workers.wire import PackedStage, pickled, unpack

MOST_REPORTED = 64 << 20
"""``poll`` returns the results that are there, up to about this many bytes."""


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


@attrs.frozen
class HostFailed:
    """A report: no worker of this host can continue."""

    error: bytes


Report: TypeAlias = WorkerReady | TaskDone | WorkerEnded | HostFailed


@attrs.frozen
class HostSetup:
    """What a host needs besides the large arrays of the program."""

    stage: PackedStage
    """The stage, without its arrays."""
    paths: tuple[str, ...]
    """Files that the workers read."""
    most_bytes: int
    """The largest result that the object stores can hold."""
    folder: str = attrs.field(factory=os.getcwd)
    environment: dict[str, str] = attrs.field(factory=lambda: dict(os.environ), repr=False)
    search_path: tuple[str, ...] = attrs.field(factory=lambda: tuple(sys.path))

    def take_on(self) -> None:
        """Adopt the consumer's folder, variables and search path as far as this machine has them.

        Variables that the machine sets itself, such as ``PATH``, are kept.
        """
        if "OMP_NUM_THREADS" not in self.environment:
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray has set it, not the user
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)
        known = set(sys.path)
        sys.path += [path for path in self.search_path if path not in known]
        if os.path.isdir(self.folder):
            os.chdir(self.folder)

    @property
    def missing(self) -> list[str]:
        """The files that this machine does not have."""
        return [path for path in self.paths if not Path(path).exists()]


class Host:
    """The actor: starts worker processes, passes them tasks and reports what becomes of them."""

    def __init__(self, setup: HostSetup, arrays: list[NDArray[np.uint8]]) -> None:
        setup.take_on()
        self._setup = setup
        packed = attrs.evolve(setup.stage, arrays=tuple(array.data for array in arrays))
        self._processes = Processes(packed)
        self._processes.start(0)
        self._workers: dict[int, Worker] = {}
        self._commands = SimpleQueue[Callable[[], None]]()
        self._reports = SimpleQueue[Report]()
        self._parked: float | None = None
        threading.Thread(target=self._serve, name="flowdsl-host", daemon=True).start()

    def missing(self) -> list[str]:
        """Return the files that this machine does not have."""
        return self._setup.missing

    def start(self, number: int) -> None:
        """Start a worker, which reports refer to by ``number``."""
        self._command(partial(self._start, number))

    def submit(self, number: int, task: bytes, *frames: Any) -> None:
        """Submit a task to a worker, with the frames of its rows."""
        self._command(partial(self._submit, number, task, frames))

    def dismiss(self, number: int) -> None:
        """End a worker that holds no tasks."""
        self._command(partial(self._dismiss, number))

    def park(self) -> None:
        """Keep the workers for the next pass, for a limited time."""
        self._command(self._park)

    def resume(self) -> None:
        """Prepare the parked workers for another pass; the death of any is reported."""
        self._command(self._resume)

    @ray.method(concurrency_group="reports")
    def poll(self) -> list[Report]:
        """Wait for reports and return them."""
        reports = [self._reports.get()]
        nbytes = _nbytes(reports[0])
        while nbytes < MOST_REPORTED:
            try:
                reports.append(self._reports.get_nowait())
            except Empty:
                break
            nbytes += _nbytes(reports[-1])
        return reports

    @ray.method(concurrency_group="life")
    def ping(self) -> None:
        """Return, which shows that this machine is alive."""

    # -- the thread that talks to the workers --------------------------------------------------

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        self._processes.wake()

    def _serve(self) -> None:
        try:
            while True:
                while not self._commands.empty():
                    self._commands.get()()
                for event in self._processes.poll():
                    self._reports.put(self._report(event))
                if self._parked is not None and time.monotonic() - self._parked > SECONDS_AT_REST:
                    os._exit(0)  # no further pass came; this frees the CPUs
        except BaseException as error:
            self._reports.put(HostFailed(pickled(travelling(error))))

    def _report(self, event: Event) -> Report:
        worker = event.worker
        (number,) = (number for number, other in self._workers.items() if other is worker)
        if isinstance(event, Ready):
            return WorkerReady(number, worker.name)
        if isinstance(event, Died):
            self._dismiss(number)
            return WorkerEnded(number, event.how, event.begun)
        worker.held.pop(event.result.number, None)
        return self._done(number, event)

    def _done(self, number: int, event: Done) -> Report:
        sent = event.delivery
        assert isinstance(sent, Sent)
        done = TaskDone(
            number, pickled(event.result), sent.content, sent.window.buffers(sent.places)
        )
        if _nbytes(done) > self._setup.most_bytes:
            full = FlowError(
                f"prefetch: a result of {_nbytes(done):,} bytes does not fit in the object store "
                f"of Ray, which has {self._setup.most_bytes:,}; make smaller batches, or start Ray "
                f"with a larger object_store_memory"
            )
            return HostFailed(pickled(full))
        return done

    def _start(self, number: int) -> None:
        self._processes.start(len(self._processes.workers) + 1)
        self._workers[number] = self._processes.workers[-1]

    def _submit(self, number: int, task: bytes, frames: tuple[Any, ...]) -> None:
        if (worker := self._workers.get(number)) is not None:  # or it has died, as was reported
            views = [frame if isinstance(frame, bytes) else memoryview(frame) for frame in frames]
            self._processes.submit(worker, TaskInput(unpack(task), packed=views))

    def _dismiss(self, number: int) -> None:
        if (worker := self._workers.pop(number, None)) is not None:
            self._processes.dismiss(worker)

    def _park(self) -> None:
        self._processes.park()
        self._parked = time.monotonic()

    def _resume(self) -> None:
        self._parked = None
        self._processes.resume()


def _nbytes(report: Report) -> int:
    if not isinstance(report, TaskDone):
        return 0
    return len(report.content) + sum(buffer.nbytes for buffer in report.buffers)

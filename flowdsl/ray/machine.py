"""Another machine as the consumer's process uses it: the handle of its host, and its workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.ray.host import (
    Buffers,
    HostFailed,
    HostSetup,
    Report,
    TaskDone,
    WorkerEnded,
    WorkerReady,
)
from flowdsl.ray.leases import Lease, forget, release
from flowdsl.workers.backend import Died, Done, Event, Ready, Worker
from flowdsl.workers.tasks import TaskInput
from flowdsl.workers.wire import pickled, unpack

SECONDS_TO_ANSWER = 20.0
"""A machine that has not answered for this time counts as dead. Ray's own check takes a minute."""

SECONDS_TO_START = 120.0
"""The limit for the first answer, before which Ray has to start the host."""

SECONDS_BETWEEN_PINGS = 2.0

_numbers = count(1)


Message: TypeAlias = tuple[int, str, Any]
"""The number of a machine, the call that is answered, and its future."""


class Inbox:
    """A queue of messages from other machines, which wakes the consumer's thread.

    Threads of Ray put messages; the consumer's thread takes them.
    """

    def __init__(self) -> None:
        self._queue = SimpleQueue[Message | None]()
        self._lock = threading.RLock()  # a collector may close this inbox within ``put``
        self._ring: Callable[[], None] | None = None

    def put(self, message: Message | None) -> None:
        """Add a message; None only wakes."""
        self._queue.put(message)
        with self._lock:
            if self._ring is not None:
                self._ring()

    def take(self, seconds: float | None) -> list[Message]:
        """Return the messages; wait for one for ``seconds``, or not at all if that is None."""
        found: list[Message | None] = []
        with suppress(Empty):
            if seconds is not None:
                found.append(self._queue.get(timeout=seconds))
            while True:
                found.append(self._queue.get_nowait())
        return [message for message in found if message is not None]

    def ring(self, ring: Callable[[], None] | None) -> None:
        """Call ``ring`` whenever a message is put; None ends that."""
        with self._lock:
            self._ring = ring


@attrs.define(eq=False)
class RemoteWorker(Worker):
    """A worker process of another machine."""

    machine: Machine = attrs.field(kw_only=True)
    number: int = attrs.field(kw_only=True)


@attrs.frozen
class Fetched:
    """Elements from another machine: a pickle, and copies of their arrays.

    They are copied out of the object store at once. So the store holds only elements on their way,
    whatever the consumer keeps, and the arrays are writable, as if they came from local workers.
    """

    content: bytes
    buffers: list[NDArray[np.uint8]]

    @property
    def nbytes(self) -> int:
        return len(self.content) + sum(buffer.nbytes for buffer in self.buffers)

    def open(self) -> Sequence[Any]:
        elements: list[Any] = unpack(self.content, self.buffers)
        return elements

    def discard(self) -> None:
        self.buffers.clear()


class Machine:
    """The host of one machine with its workers; its lease reserves a CPU for each of them."""

    def __init__(self, lease: Lease, setup: HostSetup, arrays: Any, inbox: Inbox) -> None:
        """Prepare the host; ``arrays`` is a reference to the large arrays of the program."""
        self.node = lease.node
        self.number = next(_numbers)
        self.vacant = lease.cpus
        """The number of reserved CPUs without a worker."""
        self.workers: dict[int, RemoteWorker] = {}
        self.dead: str | None = None
        """The cause of the machine's death; None if it is alive."""
        self._lease, self._host, self._inbox = lease, lease.actor, inbox
        self._asked, self._answered = time.monotonic(), 0.0
        """The times of the last ping and of the last answer, by ``time.monotonic``."""
        self.first_answer: float | None = None
        """The time of the first answer; from then on, Ray counts its CPUs as reserved."""
        self._tell("serve", self.number, setup, arrays)
        self._call("ping")
        self._call("poll", self.number)

    @property
    def cpus(self) -> int:
        """The CPUs that it reserves."""
        return self._lease.cpus

    def missing_files(self, paths: Sequence[str]) -> Any:
        """Return a reference to the files that the machine does not have."""
        return self._host.missing.remote(list(paths))

    def start(self) -> RemoteWorker:
        """Start a worker on a vacant CPU."""
        self.vacant -= 1
        number = next(_numbers)
        worker = RemoteWorker(f"worker {number} on {self.node}", machine=self, number=number)
        self.workers[number] = worker
        self._tell("start", number)
        return worker

    def submit(self, worker: RemoteWorker, task_input: TaskInput) -> None:
        """Send a task to a worker."""
        frames = [np.frombuffer(frame, np.uint8) for frame in task_input.packed or ()]
        self._tell("submit", worker.number, pickled(task_input.task), Buffers(frames))

    def dismiss(self, worker: RemoteWorker) -> None:
        """End a worker; its CPU is vacant then."""
        if self.workers.pop(worker.number, None) is not None:
            self._tell("dismiss", worker.number)
            self.vacant += 1

    def park(self) -> None:
        """Keep the workers for the next pass."""
        self._tell("park")

    def resume(self) -> None:
        """Prepare the parked workers for another pass; a death meanwhile becomes an event."""
        self._tell("resume")

    def close(self) -> None:
        """End the workers; the host stays for another backend, unless it is dead."""
        if self.dead is None:
            release(self._lease)
        else:
            forget(self._lease)
        self.dead = self.dead or "closed"

    def events(self, call: str, answer: Any) -> list[Event]:
        """Return the events of an answer of the host, and call it again."""
        if self.dead is not None:
            return []
        try:
            reports: list[Report] = answer.result() or []
        except Exception as error:  # an error of Ray, or of unpickling an answer
            return self._died(_reason(error))
        self._answered = time.monotonic()
        self.first_answer = self.first_answer or self._answered
        if call == "poll":
            self._call("poll", self.number)
        return [event for report in reports for event in self._events(report)]

    def check(self) -> list[Event]:
        """Return the deaths of the workers if the machine has not answered for too long."""
        now = time.monotonic()
        if self.dead is not None:
            return []
        if self._answered < self._asked:
            limit = SECONDS_TO_ANSWER if self._answered else SECONDS_TO_START
            if now - self._asked < limit:
                return []
            self._lease.end()
            return self._died(f"the machine has not answered for {limit:g} seconds")
        if now - self._asked > SECONDS_BETWEEN_PINGS:
            self._asked = now
            self._call("ping")
        return []

    def _events(self, report: Report) -> list[Event]:
        if isinstance(report, HostFailed):
            error: BaseException = unpack(report.error)
            error.add_note(f"on {self.node}")
            raise error
        if not isinstance(report, WorkerReady | WorkerEnded | TaskDone):
            return []
        worker = self.workers.get(report.number)
        if worker is None:  # it was dismissed
            return []
        if isinstance(report, WorkerReady):
            worker.ready, worker.name = True, f"{report.name} on {self.node}"
            return [Ready(worker)]
        if isinstance(report, WorkerEnded):
            del self.workers[report.number]
            self.vacant += 1
            return [Died(worker, report.how, report.begun)]
        copies = [buffer.copy() for buffer in report.buffers]
        return [Done(worker, unpack(report.result), Fetched(report.content, copies))]

    def _died(self, how: str) -> list[Event]:
        """Return the death of each ready worker, which had begun the oldest task that it holds.

        A worker that is not ready holds no task; the backend replaces it.
        """
        self.dead = how
        ready = [worker for worker in self.workers.values() if worker.ready]
        self.workers.clear()
        return [Died(worker, how, next(iter(worker.held), None)) for worker in ready]

    def _call(self, name: str, *arguments: Any) -> None:
        future = getattr(self._host, name).remote(*arguments).future()
        future.add_done_callback(partial(_answer, self._inbox, self.number, name))

    def _tell(self, name: str, *arguments: Any) -> None:
        getattr(self._host, name).options(num_returns=0).remote(*arguments)


def _answer(inbox: Inbox, machine: int, call: str, future: Any) -> None:
    inbox.put((machine, call, future))


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"its host ended: {lines[-1][:200]}" if lines else type(error).__name__

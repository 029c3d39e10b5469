"""Worker threads of the consumer's process, for functions that release the GIL.

Rows and elements are passed by reference, without packing or copying.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Sequence
from contextvars import copy_context
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import attrs

from flowdsl.elements.recycled import RECYCLED
from flowdsl.executor.execute import execute, executor_of
from flowdsl.plan.plan import Stage
from flowdsl.resources.limits import start_thread
from flowdsl.workers.backend import POLL_SECONDS, Done, Event, Owner, Worker, result_of
from flowdsl.workers.tasks import InputRows, TaskInput

SECONDS_TO_LEAVE = 0.5
"""The time that the end of a run waits for its threads, before it abandons those at work."""
_numbers = count(1)


@attrs.define(eq=False)
class _Thread(Worker):
    inbox: SimpleQueue[TaskInput | None] = attrs.field(factory=SimpleQueue)
    thread: threading.Thread | None = None


@attrs.frozen
class _InMemory:
    """A delivery of elements that are already in the consumer's process."""

    elements: list[Any]
    nbytes: int

    def open(self) -> Sequence[Any]:
        return self.elements

    def discard(self) -> None:
        """Do nothing: the elements need no release."""


class Threads:
    """The worker threads of a stage."""

    def __init__(self, stage: Stage, time_operators: bool = False) -> None:
        self._stage = stage
        self._time_operators = time_operators
        self._events: SimpleQueue[Event | BaseException | None] = SimpleQueue()
        self._leave = threading.Event()
        self._threads: list[_Thread] = []
        self._owner = Owner()
        self._end: weakref.finalize[..., Threads] | None = None

    @property
    def workers(self) -> list[Worker]:
        return list[Worker](self._threads)

    def start(self, count: int) -> None:
        self._owner.check()
        if self._end is None:
            self._end = weakref.finalize(self, _end, self._owner, self._threads, self._leave)
        while len(self._threads) < count:
            worker = _Thread(f"thread {next(_numbers)}", ready=True)
            arguments = (self._stage, self._time_operators, worker, self._events, self._leave)
            worker.thread = threading.Thread(
                target=copy_context().run,  # which has the settings of decimal and NumPy
                args=(_serve, *arguments),
                name=f"flowdsl-{worker.name}",
                daemon=True,
            )
            start_thread(worker.thread, f"prefetch(threads={self._stage.workers.count})")
            self._threads.append(worker)

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        return rows, 0

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        assert isinstance(worker, _Thread)
        self._owner.check()
        worker.held[task_input.task.number] = task_input
        worker.inbox.put(task_input)

    def poll(self) -> list[Event]:
        self._owner.check()
        events: list[Event] = []
        with contextlib.suppress(Empty):
            event = self._events.get(timeout=POLL_SECONDS)
            while True:
                if isinstance(event, BaseException):
                    raise event
                if event is not None:
                    events.append(event)
                event = self._events.get_nowait()
        return events

    def wake(self) -> None:
        self._events.put(None)

    def replace(self, worker: Worker) -> None:
        raise AssertionError("a thread does not die")

    def dismiss(self, worker: Worker) -> None:
        assert isinstance(worker, _Thread)
        self._threads.remove(worker)
        worker.inbox.put(None)

    def park(self) -> bool:
        return False  # starting new threads costs next to nothing

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        return False

    def close(self) -> None:
        if self._end is not None:
            self._end()


def _serve(
    stage: Stage,
    time_operators: bool,
    worker: _Thread,
    events: SimpleQueue[Event | BaseException | None],
    leave: threading.Event,
) -> None:
    try:
        executor = executor_of(stage.program, stage.end_to_end, RECYCLED.allocate, time_operators)
        while (task_input := worker.inbox.get()) is not None and not leave.is_set():
            task = task_input.task
            outcome = execute(executor, task.addresses(), task_input.rows, task.most_bytes)
            delivery = _InMemory(outcome.elements, outcome.nbytes)
            events.put(Done(worker, result_of(outcome, task), delivery))
    except BaseException as error:  # also SystemExit, from a function that ends its process
        events.put(error)


def _end(owner: Owner, threads: list[_Thread], leave: threading.Event) -> None:
    if not owner.is_here:
        return
    leave.set()
    for worker in threads:
        worker.inbox.put(None)
    deadline = time.monotonic() + SECONDS_TO_LEAVE
    for worker in threads:
        if worker.thread is not None and worker.thread is not threading.current_thread():
            worker.thread.join(max(0.0, deadline - time.monotonic()))

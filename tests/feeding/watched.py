"""A pump with checks of its access to the run and the sink."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar, cast

from flowdsl import Flow, Run
from flowdsl.feeding.pump import EndOfPass, Pump, Sink

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds; they only end a failing test."""


class WatchedRun(Generic[T]):
    """A run that records concurrent use by two threads, and the threads that close it."""

    def __init__(self, run: Run[T]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self.collisions: list[str] = []
        self.closed_by: list[str] = []

    @property
    def position(self) -> int:
        return self._run.position

    @property
    def acknowledges(self) -> bool:
        return self._run.acknowledges

    def commit(self, position: int) -> None:
        with self.alone("commit"):
            self._run.commit(position)

    def commit_explicitly(self) -> None:
        self._run.commit_explicitly()

    def __next__(self) -> T:
        with self.alone("next"):
            return next(self._run)

    def mark(self, since: int) -> None:
        with self.alone("mark"):
            self._run.mark(since)

    def state_dict(self, position: int) -> dict[str, Any]:
        with self.alone("state_dict"):
            return self._run.state_dict(position)

    def close(self, *, keep_workers: bool) -> None:
        with self.alone("close"):
            self.closed_by.append(threading.current_thread().name)
            self._run.close(keep_workers=keep_workers)

    def __exit__(self, *error: object) -> None:
        with self.alone("close"):
            self.closed_by.append(threading.current_thread().name)
            self._run.__exit__(*cast("Any", error))

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Record an error if another thread uses the run at the same time."""
        if not self._lock.acquire(blocking=False):
            self.collisions.append(what)
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


class Positioned(Sink[T]):
    """A queue of the elements, each with its position."""

    def __init__(self) -> None:
        self.queue = SimpleQueue[tuple[int, T]]()

    def put(self, element: T, position: int) -> None:
        self.queue.put((position, element))


class Pumped(Generic[T]):
    """One pass of a flow through a pump; used with ``with``, it leaves nothing behind."""

    def __init__(
        self,
        flow: Flow[T],
        capacity: int,
        state: Mapping[str, object] | None = None,
        sink: Positioned[T] | None = None,
    ) -> None:
        run = iter(flow) if state is None else flow.resume(state)
        self.position = run.position
        self.run = WatchedRun(run)
        self.sink = sink or Positioned[T]()
        self.pump = Pump(cast("Run[T]", self.run), self.sink, capacity)

    def take(self, n: int = 1) -> list[T]:
        """Return the next ``n`` elements; check that their positions are consecutive."""
        self.pump.take(n)
        taken = [self.sink.queue.get_nowait() for _ in range(n)]
        assert [position for position, _ in taken] == [self.position + i for i in range(n)]
        self.position += n
        return [element for _, element in taken]

    def take_all(self, steps: Iterable[int]) -> list[T]:
        """Return the elements until the end of the pass, in these steps, then the rest."""
        taken: list[T] = []
        try:
            for n in steps:
                taken += self.take(n)
        except EndOfPass as end:
            taken += self.take(end.left) if end.left else []
        return taken

    def state(self) -> Mapping[str, object]:
        """Return the state after a round trip through JSON."""
        state: Mapping[str, object] = json.loads(json.dumps(self.pump.state_dict()))
        return state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.pump.stop(PATIENCE)
        assert not pump_threads()
        assert self.run.closed_by == ["Pump"]
        assert self.run.collisions == []


def pump_threads() -> list[threading.Thread]:
    """Return the pump threads that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == "Pump"]


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Start a function in a separate thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread

"""Active workers: the number of workers started and dismissed, with a simulated backend."""

from __future__ import annotations

import time
from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.resources.worker_kinds import PROCESSES, Workers
from flowdsl.workers.active_workers import AT_FIRST, ActiveWorkers, Totals
from flowdsl.workers.backend import Worker, WorkerBackend


@attrs.define
class Counted:
    """The part of a backend that ActiveWorkers uses."""

    ready_at_once: bool = False
    workers: list[Worker] = attrs.field(factory=list[Worker])

    def start(self, count: int) -> None:
        while len(self.workers) < count:
            self.workers.append(Worker(f"worker {len(self.workers)}", ready=self.ready_at_once))

    def dismiss(self, worker: Worker) -> None:
        assert not worker.held
        self.workers.remove(worker)


def active_workers_of(backend: Counted, count: int, **asked: Any) -> ActiveWorkers:
    return ActiveWorkers.of(
        cast("WorkerBackend", backend), Workers(PROCESSES, count, **asked), None
    )


@given(st.integers(1, 64), st.lists(st.integers(0, 9)))
def test_all_workers_exist_once_the_first_are_ready(count: int, steps: list[int]) -> None:
    backend = Counted()
    staff = active_workers_of(backend, count)
    staff.start(Totals(0.0, 0.0, 0.0))
    assert len(backend.workers) == min(count, AT_FIRST)
    for ready in steps:
        waiting = [worker for worker in backend.workers if not worker.ready]
        for worker in waiting[:ready]:
            worker.ready = True
        staff.start_missing()
        there = len(backend.workers)
        assert there <= count
        assert not any(worker.ready for worker in backend.workers) or there >= min(count, AT_FIRST)
    while not all(worker.ready for worker in backend.workers):
        for worker in backend.workers:
            worker.ready = True
        staff.start_missing()
    assert len(backend.workers) == count


@pytest.mark.parametrize("count", [1, 2, 3, 25])
def test_workers_that_are_ready_immediately_are_all_started(count: int) -> None:
    backend = Counted(ready_at_once=True)
    active_workers_of(backend, count).start(Totals(0.0, 0.0, 0.0))
    assert len(backend.workers) == count


def test_parked_workers_are_kept_and_missing_ones_started() -> None:
    backend = Counted(ready_at_once=True)
    backend.start(3)
    before = list(backend.workers)
    active_workers_of(backend, 5).start(Totals(0.0, 0.0, 0.0))
    assert backend.workers[:3] == before
    assert len(backend.workers) == 5


def test_only_idle_surplus_workers_are_dismissed() -> None:
    backend = Counted(ready_at_once=True)
    backend.start(4)
    staff = active_workers_of(backend, 4, auto=True)  # begins with one
    for k, worker in enumerate(backend.workers):
        worker.elements, worker.busy = 10 + k, 1.0 + k
    kept, idle, holds, other = backend.workers
    holds.held[0] = cast("Any", None)
    staff.dismiss_idle()
    assert backend.workers == [kept, holds]
    assert staff.members == [kept]
    assert (staff.dismissed.elements, staff.dismissed.busy) == (11 + 13, 2.0 + 4.0)
    holds.held.clear()
    staff.dismiss_idle()
    assert backend.workers == [kept]
    assert (idle.elements, other.elements) == (11, 13)


def test_the_consumer_waits_while_workers_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a short run would seem to spend its time on handing elements over."""
    start = ActiveWorkers.start

    def slow(self: ActiveWorkers, totals: Totals) -> None:
        time.sleep(0.1)
        start(self, totals)

    monkeypatch.setattr(ActiveWorkers, "start", slow)
    with iter(fl.from_range(8).map(abs).prefetch(threads=1)) as run:
        list(run)
        stage = run.statistics().stages[-1]
    assert stage.waited >= 0.1

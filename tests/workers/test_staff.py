"""How many workers are started, and when: on a crew of which the test says who is ready."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.worker_kinds import PROCESSES, Workers
from flowdsl.workers.crew import Crew, Worker
from flowdsl.workers.staff import AT_FIRST, Staff


@attrs.define
class Counted:
    """As much of a crew as its staff knows."""

    ready_at_once: bool = False
    workers: list[Worker] = attrs.field(factory=list[Worker])

    def start(self, count: int) -> None:
        while len(self.workers) < count:
            self.workers.append(Worker(f"worker {len(self.workers)}", ready=self.ready_at_once))

    def dismiss(self, worker: Worker) -> None:
        assert not worker.held
        self.workers.remove(worker)


def staff_of(crew: Counted, count: int, **asked: Any) -> Staff:
    return Staff.of(cast("Crew", crew), Workers(PROCESSES, count, **asked), None)


@given(st.integers(1, 64), st.lists(st.integers(0, 9)))
def test_all_are_there_once_each_that_was_started_is_ready(count: int, steps: list[int]) -> None:
    crew = Counted()
    staff = staff_of(crew, count)
    staff.start(0.0, 0.0, 0.0)
    assert len(crew.workers) == min(count, AT_FIRST)
    for ready in steps:
        waiting = [worker for worker in crew.workers if not worker.ready]
        for worker in waiting[:ready]:
            worker.ready = True
        staff.complete()
        there = len(crew.workers)
        assert there <= count
        assert not any(worker.ready for worker in crew.workers) or there >= min(count, AT_FIRST)
    while not all(worker.ready for worker in crew.workers):
        for worker in crew.workers:
            worker.ready = True
        staff.complete()
    assert len(crew.workers) == count


@pytest.mark.parametrize("count", [1, 2, 3, 25])
def test_those_that_are_ready_at_once_are_all_started(count: int) -> None:
    crew = Counted(ready_at_once=True)
    staff_of(crew, count).start(0.0, 0.0, 0.0)
    assert len(crew.workers) == count


def test_those_at_rest_are_kept_and_completed() -> None:
    crew = Counted(ready_at_once=True)
    crew.start(3)
    before = list(crew.workers)
    staff_of(crew, 5).start(0.0, 0.0, 0.0)
    assert crew.workers[:3] == before
    assert len(crew.workers) == 5


def test_who_goes_is_idle_and_beyond_the_number() -> None:
    crew = Counted(ready_at_once=True)
    crew.start(4)
    staff = staff_of(crew, 4, auto=True)  # begins with one
    for k, worker in enumerate(crew.workers):
        worker.elements, worker.busy = 10 + k, 1.0 + k
    kept, idle, holds, other = crew.workers
    holds.held[0] = cast("Any", None)
    staff.dismiss_idle()
    assert crew.workers == [kept, holds]
    assert staff.able == [kept]
    assert (staff.dismissed.elements, staff.dismissed.busy) == (11 + 13, 2.0 + 4.0)
    holds.held.clear()
    staff.dismiss_idle()
    assert crew.workers == [kept]
    assert (idle.elements, other.elements) == (11, 13)

"""The pool's reaction to deaths: the blamed task, and the retries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

import flowdsl as fl
from flowdsl import WorkerDied
from flowdsl.executor.execute import execute, executor_of
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Stage
from flowdsl.runtime.skips import Skips
from flowdsl.workers.backend import Died, Done, Event, Worker, result_of
from flowdsl.workers.pool import Pool
from flowdsl.workers.processes import Process, Processes, processes
from flowdsl.workers.tasks import InputRows, Task, TaskInput
from flowdsl.workers.threads import _InMemory
from tests.chaos.dying import kills
from tests.paces import paced


class RehearsedDeaths:
    """A backend that works in the consumer's thread, some of which die once the others are idle.

    Until then they do nothing; those in their places work like any other.
    """

    def __init__(self, stage: Stage, workers: int, dying: int, begun: Callable[[Worker], Any]):
        self.workers = [Worker(f"worker {k}", ready=True) for k in range(workers)]
        self._dying = self.workers[:dying]
        self._begun = begun
        self._bell = threading.Event()
        self._making = executor_of(stage.program, end_to_end=False)

    def start(self, count: int) -> None:
        pass

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        return rows, 0

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        worker.held[task_input.task.number] = task_input

    def poll(self) -> list[Event]:
        events: list[Event] = []
        for worker in self.workers:
            if worker.held and worker not in self._dying:
                task_input = next(iter(worker.held.values()))
                made = execute(self._making, task_input.task.addresses(), task_input.rows)
                result = result_of(made, task_input.task)
                nbytes = sum(made.positions)  # each is larger than the last
                events.append(Done(worker, result, _InMemory(made.elements, nbytes)))
        if not events:
            events += [Died(w, "a rehearsal", self._begun(w)) for w in self._dying if w.held]
            if not events and self._bell.wait(60):
                self._bell.clear()
                return []
            assert events, "nobody has anything to do, or ever will"
        return events

    def wake(self) -> None:
        self._bell.set()

    def replace(self, worker: Worker) -> None:
        self.workers[self.workers.index(worker)] = Worker("another", ready=True)

    def dismiss(self, worker: Worker) -> None:
        self.workers.remove(worker)

    def park(self) -> bool:
        return False

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        return False

    def close(self) -> None:
        pass


def rehearsed(
    workers: int, dying: int, begun: Callable[[Worker], Any], deaths: int = 3, **limits: Any
) -> Pool:
    flow = fl.from_range(400).shuffle().map(abs)
    flow = flow.prefetch(procs=workers, deaths=deaths, **limits)
    stage = plan_of(flow.node).root
    assert isinstance(stage, Stage)
    return Pool(stage, (), RehearsedDeaths(stage, workers, dying, begun), Skips().report)


def shuffled(epoch: int) -> list[int]:
    return list(fl.from_range(400).shuffle().epoch(epoch))


def oldest(worker: Worker) -> int:
    return min(worker.held)


class TestRehearsedDeaths:
    @pytest.mark.parametrize("memory", [None, 1200, 8000])
    @pytest.mark.parametrize("dying", [1, 2])
    def test_a_retry_has_credit_although_all_results_wait_for_it(
        self, dying: int, memory: int | None
    ) -> None:
        """The first two workers die when the third one has used its credit."""
        with paced([5]):
            pool = rehearsed(3, dying, oldest, memory=memory)
            assert [x for _, x in pool.rows(0)] == shuffled(0)
        statistics = pool.statistics()
        assert (statistics.deaths, statistics.skipped) == (dying, 0)
        assert statistics.retried >= dying

    def test_only_begun_tasks_are_blamed(self) -> None:
        """The second of two tasks is blamed: the result of the first was lost with the worker."""
        with paced([1]):
            pool = rehearsed(2, 1, lambda worker: max(worker.held), deaths=1, on_error="raise")
            with pytest.raises(WorkerDied, match=r"^a worker died at work on element 2 of map"):
                list(pool.rows(0))

    def test_tasks_not_begun_are_blamed_after_repeated_deaths(self) -> None:
        """Receiving a task may kill workers before they record it; retries are limited, too."""
        with paced([1]):
            pool = rehearsed(1, 1, lambda worker: None, deaths=1)
            backend = pool.backend
            assert isinstance(backend, RehearsedDeaths)
            replace = backend.replace

            def replace_by_mortal(worker: Worker) -> None:
                replace(worker)
                backend._dying = list(backend.workers)

            backend.replace = replace_by_mortal  # type: ignore[method-assign]  # they all die
            with pytest.raises(WorkerDied, match=r"3 workers died.* element 0 of map"):
                list(pool.rows(0))
        assert pool.statistics().deaths == 3

    def test_a_death_without_tasks_blames_none(self) -> None:
        with paced([1]):
            pool = rehearsed(2, 2, lambda worker: None, deaths=1)
            assert [x for _, x in pool.rows(0)] == shuffled(0)

    @pytest.mark.parametrize("workers", [1, 3])
    def test_an_abandoned_pass_does_not_affect_the_next(self, workers: int) -> None:
        """Neither in the elements, although old results may still arrive, nor in the counts."""
        with paced([5]):
            pool = rehearsed(workers, 0, oldest)
            for size in (1, 50, 7):
                assert [x for _, x in islice(pool.rows(0), size)] == shuffled(0)[:size]
                assert [x for _, x in pool.rows(1)] == shuffled(1)
        statistics = pool.statistics()
        assert statistics.entered == statistics.delivered
        assert statistics.in_flight == 0


@pytest.mark.usefixtures("mortals")
class TestNoteOfTheTaskBegun:
    def backend(self) -> tuple[Processes, Process]:
        stage = plan_of(fl.from_range(9).map(kills(4)).prefetch(procs=1).node).root
        assert isinstance(stage, Stage)
        backend = processes(stage)
        backend.start(1)
        (worker,) = backend.workers
        assert isinstance(worker, Process)
        while not worker.ready:
            backend.poll()
        return backend, worker

    def test_survives_the_death_of_its_worker(self) -> None:
        """The result of the previous task may be lost with the worker."""
        backend, worker = self.backend()
        for number, start in ((10, 0), (11, 3), (12, 6)):
            backend.submit(worker, TaskInput(Task(number, 0, start, start + 3)))
        while not (died := [event for event in backend.poll() if isinstance(event, Died)]):
            pass
        assert died[0].begun == 11
        backend.close()

    def test_is_cleared_after_a_pass(self) -> None:
        """The next pass may use the same task numbers."""
        backend, worker = self.backend()
        backend.submit(worker, TaskInput(Task(0, 0, 0, 3)))
        while not backend.poll():
            pass
        worker.held.clear()
        begun = [worker.window.begun]
        assert backend.park()
        assert backend.resume()
        begun.append(worker.window.begun)
        assert begun == [0, None]
        backend.close()

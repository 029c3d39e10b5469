"""The worker cache: workers are reused for the next pass over the same flow."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flowdsl as fl
from flowdsl import Flow
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Stage
from flowdsl.workers.backend import Done
from flowdsl.workers.processes import processes
from flowdsl.workers.tasks import Task, TaskInput
from tests.children import workers_of
from tests.waiting import eventually

STEP = 1


def with_pid(i: int) -> tuple[int, int]:
    return i, os.getpid()


def flow_of(func: Any = with_pid, n: int = 40) -> Flow[Any, Any]:
    return fl.from_range(n).map(func).prefetch(procs=1)


def pids(elements: Any) -> set[int]:
    return {pid for _, pid in elements}


def test_passes_share_the_same_worker() -> None:
    flow = flow_of()
    assert len(pids(flow) | pids(flow.epoch(1)) | pids(flow.epoch(2))) == 1


def test_equal_flows_have_separate_workers() -> None:
    one, other = flow_of(), flow_of()
    assert pids(one).isdisjoint(pids(other))


def test_concurrent_runs_have_separate_workers() -> None:
    flow = flow_of(n=3000)
    first, second = iter(flow), iter(flow)
    both = [(next(first), next(second)) for _ in range(3000)]
    assert all(a[0] == b[0] for a, b in both)
    assert {a[1] for a, _ in both}.isdisjoint({b[1] for _, b in both})
    assert list(first) == list(second) == []
    assert len(workers_of()) == 1
    assert pids(flow) <= pids(a for a, _ in both) | pids(b for _, b in both)


def test_changed_closure_values_need_new_workers() -> None:
    step = 1
    flow = flow_of(lambda i: (i + step, os.getpid()))
    first = list(flow)
    step = 100
    second = list(flow)
    assert [x for x, _ in second] == [x + 99 for x, _ in first]
    assert pids(first).isdisjoint(pids(second))


def test_a_run_that_is_closed_ends_its_workers() -> None:
    flow = flow_of(n=10**6)
    with iter(flow) as run:
        next(run)
    assert workers_of() == []
    del run
    assert len(flow) == 10**6


def test_a_worker_that_died_while_parked_is_replaced() -> None:
    flow = flow_of()
    (pid,) = pids(flow)
    os.kill(pid, 9)
    assert eventually(lambda: f"{pid}" not in map(str, workers_of()))
    assert [i for i, _ in flow] == list(range(40))
    assert pids(flow).isdisjoint({pid})


def test_closing_a_run_twice_parks_its_workers_once() -> None:
    flow = flow_of()
    run = iter(flow)
    first = pids(run)
    run.close()
    run.close()
    assert pids(flow) == first


def test_parked_workers_end_with_a_flow_in_a_cycle() -> None:
    flow = flow_of()
    flow.collect()
    cycle: list[Any] = [flow]
    cycle.append(cycle)
    del flow, cycle
    gc.collect()
    assert workers_of() == []


def test_another_folder_or_environment_needs_new_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = fl.from_range(1).map(lambda _: (os.getcwd(), os.environ.get("PLACE"))).prefetch(procs=1)
    here = os.getcwd()
    assert flow.collect() == [(here, None)]
    monkeypatch.setenv("PLACE", "elsewhere")
    assert flow.collect() == [(here, "elsewhere")]
    monkeypatch.chdir(tmp_path)
    assert flow.collect() == [(str(tmp_path), "elsewhere")]


def test_parked_workers_wait_for_a_slow_first_task(monkeypatch: Any) -> None:
    monkeypatch.setattr("flowdsl.workers.processes.SECONDS_AT_REST", 1.0)
    slow = [0.0]

    def words() -> Iterator[int]:
        time.sleep(slow[0])
        yield from range(3)

    flow = fl.from_iterable(words).map(abs).prefetch(procs=1)
    flow.collect()
    slow[0] = 2.0
    run = iter(flow)
    assert list(run) == [0, 1, 2]
    assert run.statistics().stages[-1].deaths == 0


def test_parked_workers_exit_after_a_timeout(monkeypatch: Any) -> None:
    monkeypatch.setattr("flowdsl.workers.processes.SECONDS_AT_REST", 0.05)
    flow = flow_of()
    first = pids(flow)
    assert eventually(lambda: workers_of() == [])
    assert [i for i, _ in flow] == list(range(40))
    assert pids(flow).isdisjoint(first)


def first_of(elements: Any, count: int) -> list[Any]:
    """The first elements of a loop that is left by a ``break``."""
    found = []
    for x in elements:
        found.append(x)
        if len(found) == count:
            break
    return found


RECIPES: dict[str, Any] = {
    "by position": lambda: fl.from_range(3000).shuffle().map(with_pid).prefetch(procs=2),
    "a stream": lambda: fl.from_iterable(range(3000)).map(with_pid).prefetch(procs=2),
    "rows in memory": lambda: fl.from_items(list(range(3000))).map(with_pid).prefetch(procs=2),
    "unordered": lambda: fl.from_range(3000).map(with_pid).prefetch(procs=2, ordered=False),
    "filtered": lambda: fl.from_range(3000).filter(is_odd).map(with_pid).prefetch(procs=2),
    "two stages": lambda: RECIPES["by position"]().map(str).prefetch(procs=1).map(eval),
}


def is_odd(i: int) -> bool:
    return i % 2 == 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep workers however long their current element takes."""
    monkeypatch.setattr("flowdsl.workers.processes.SECONDS_TO_FINISH", 60.0)


class TestAfterABreak:
    @pytest.mark.usefixtures("patient")
    @pytest.mark.parametrize("name", RECIPES)
    def test_workers_stay_and_the_next_pass_is_whole(self, name: str) -> None:
        flow, expected = RECIPES[name](), [x for x, _ in RECIPES[name]()]
        flow.collect()
        before = set(workers_of())
        for count in (1, 1, 700, 33):
            found = [x for x, _ in first_of(flow, count)]
            assert len(found) == count
            assert set(workers_of()) == before
            if name != "unordered":
                assert found == expected[:count]
        assert sorted(x for x, _ in flow) == sorted(expected)
        assert set(workers_of()) == before

    @pytest.mark.usefixtures("patient")
    def test_loaders_keep_theirs(self) -> None:
        loader = RECIPES["by position"]().to_torch()
        first_of(loader, 1)
        before = set(workers_of())
        assert len(before) == 2
        for count in (1, 300):
            assert len(first_of(loader, count)) == count
            assert set(workers_of()) == before
        loader.close()
        assert workers_of() == []

    def test_a_run_in_a_cycle_ends_its_workers(self) -> None:
        """The garbage collector may end the workers before it closes the run."""
        flow = flow_of(n=10**6)
        cycle: list[Any] = [iter(flow)]
        cycle.append(cycle)
        next(cycle[0])
        del cycle
        gc.collect()
        assert [x for x, _ in first_of(flow, 3)] == [0, 1, 2]

    def test_a_program_may_exit_with_an_open_run(self) -> None:
        program = """
import flowdsl as fl
def f(i): return i
flow = fl.from_range(10**6).map(f).prefetch(procs=1)
run = iter(flow)
print(next(run))
"""
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        assert (ended.stdout, ended.stderr) == ("0\n", "")

    def test_end_workers_ends_them(self) -> None:
        flow = flow_of(n=10**6)
        first_of(flow, 1)
        assert len(workers_of()) == 1
        flow.end_workers()
        assert workers_of() == []

    def test_a_worker_with_a_long_element_is_not_waited_for(self) -> None:
        def slow(i: int) -> tuple[int, int]:
            if i == 2:
                time.sleep(600)
            return with_pid(i)

        flow = flow_of(slow)  # whose first two tasks have one element each
        for _ in range(2):
            assert [x for x, _ in first_of(flow, 2)] == [0, 1]

    def test_workers_that_died_are_replaced(self) -> None:
        flow = flow_of(n=10**5)
        before = pids(first_of(flow, 10))
        for pid in before:
            os.kill(pid, 9)
        after = first_of(flow, 10)
        assert [x for x, _ in after] == list(range(10))
        assert pids(after).isdisjoint(before)

    @pytest.mark.usefixtures("patient")
    def test_an_error_in_the_loop_keeps_them_too(self) -> None:
        flow = flow_of(n=10**5)
        with pytest.raises(ZeroDivisionError):
            _ = [1 // 0 for _ in flow]
        before = set(workers_of())
        assert pids(first_of(flow, 3)) <= before

    @pytest.mark.usefixtures("patient")
    def test_a_cancelled_task_ends_after_its_element(self, tmp_path: Path) -> None:
        def noted(i: int) -> int:
            with (tmp_path / "computed").open("a") as file:
                file.write(f"{i}\n")
            time.sleep(0.05)
            return i

        stage = plan_of(fl.from_range(10**4).map(noted).prefetch(procs=1).node).root
        assert isinstance(stage, Stage)
        backend = processes(stage)
        backend.start(1)
        (worker,) = backend.workers
        while not worker.ready:
            backend.poll()
        backend.submit(worker, TaskInput(Task(0, 0, 0, 200)))
        backend.submit(worker, TaskInput(Task(1, 0, 200, 400)))
        assert eventually((tmp_path / "computed").exists)
        worker.elements, worker.busy = 1, 0.05  # as if it had returned one element
        assert backend.park()
        assert backend.resume()
        assert backend.workers == [worker]
        assert not worker.held
        assert len((tmp_path / "computed").read_text().split()) < 200
        backend.submit(worker, TaskInput(Task(0, 0, 7, 9)))
        (done,) = next(filter(None, iter(backend.poll, None)))
        assert isinstance(done, Done)
        assert done.delivery.open() == [7, 8]
        backend.close()

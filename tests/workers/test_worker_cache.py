"""The worker cache: workers are reused for the next pass over the same flow."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flowdsl as fl
from flowdsl import Flow
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


def test_an_abandoned_pass_ends_its_workers() -> None:
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

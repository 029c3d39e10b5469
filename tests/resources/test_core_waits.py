"""Tests of the time for which a thread waits for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flowdsl.resources import core_waits
from flowdsl.resources.core_waits import waited_for_core

COUNTED = Path("/proc/thread-self/schedstat")

needs_counts = pytest.mark.skipif(
    not COUNTED.exists(), reason="the system does not count how long threads wait for a core"
)

ON_ONE_CORE = """
import os, threading, time
import flowdsl as fl


def compute(i):
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        pass
    return i


def of_workers(keyword):
    run = fl.from_range(10**6).map(compute).prefetch(**{keyword: 2}).epoch(0)
    for _, _ in zip(range(150), run):
        pass
    (stage,) = [s for s in run.statistics().stages if s.workers]
    run.close()
    return stage.waiting_for_core


def of_thread():
    profile = fl.from_range(10**6).map(compute).profile(seconds=0.3)
    return profile.statistics.waited_for_core


def until_above(least, measured):
    # a pause of the machine, in which nobody waits for a core, makes the share small
    for _ in range(6):
        if (found := measured()) > least:
            break
    return found


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print("procs", until_above(0.1, lambda: of_workers("procs")), flush=True)
    print("threads", of_workers("threads"), flush=True)
    other = fl.from_range(10**6).map(compute).prefetch(procs=1).epoch(0)
    next(other)
    threading.Thread(target=lambda: [x for x in other], daemon=True).start()
    print("thread", until_above(0.01, of_thread), flush=True)
    os._exit(0)
"""


def counted() -> float:
    return int(COUNTED.read_text().split()[1]) / 1e9


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@needs_counts
def test_the_waiting_is_the_one_of_the_thread_that_asks() -> None:
    assert waited_for_core() == pytest.approx(counted(), abs=1)
    others: list[tuple[float, float]] = []
    thread = threading.Thread(target=lambda: others.append((waited_for_core(), counted())))
    thread.start()
    thread.join()
    ((read, of_file),) = others
    assert read <= of_file
    assert of_file - read < 1


@needs_counts
def test_a_thread_that_ends_closes_its_file() -> None:
    waited_for_core()
    before = descriptors()
    for _ in range(5):
        thread = threading.Thread(target=waited_for_core)
        thread.start()
        thread.join()
    assert descriptors() <= before


@needs_counts
def test_a_fork_counts_its_own_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_for_core()
    first = core_waits._thread.counter
    monkeypatch.setattr(os, "getpid", lambda: -1)
    waited_for_core()
    assert core_waits._thread.counter is not first


def test_it_is_zero_where_it_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(core_waits, "_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(core_waits, "_thread", core_waits._Thread())
    assert waited_for_core() == 0.0
    other = tmp_path / "other"
    other.write_text("of another form")
    monkeypatch.setattr(core_waits, "_FILE", str(other))
    monkeypatch.setattr(core_waits, "_thread", core_waits._Thread())
    assert waited_for_core() == 0.0


@needs_counts
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot choose the core")
def test_workers_that_share_a_core_wait_for_it(tmp_path: Path) -> None:
    """Two processes on one core wait for it half of the time.

    Two threads of one process mostly wait for the interpreter lock instead.
    """
    program = tmp_path / "on_one_core.py"
    program.write_text(ON_ONE_CORE)
    output = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    waiting = {line.split()[0]: float(line.split()[1]) for line in output.splitlines()}
    assert waiting["procs"] > 0.1
    assert 0 <= waiting["threads"] <= 1
    assert waiting["thread"] > 0.01

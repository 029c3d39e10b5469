"""Slow rows: every row is delivered once and in order, while others wait behind slow ones."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.workers import pool
from tests.paces import paced
from tests.waiting import eventually

ROWS = 300


def sleepy(i: int) -> int:
    """2% of the rows sleep for 50 to 200 ms."""
    if i % 50 == 7:
        time.sleep(0.05 + 0.15 * (i * 7 % 11) / 10)
    return i


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize(
    ("workers", "ahead", "size"),
    [
        (2, 6, 1),  # 16 elements in flight
        (2, 6, 12),  # ... 192
        (8, 0, 1),  # 16
        (8, 6, 1),  # 64
        (8, 6, 3),  # 192
        (25, 0, 1),  # 50
        (25, 6, 1),  # 200
    ],
)
def test_slow_elements_are_delivered_in_order(
    workers: int, ahead: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TASKS_AHEAD", ahead)
    with paced([size]):
        run = iter(fl.from_range(ROWS).map(sleepy).prefetch(procs=workers))
        assert list(run) == list(range(ROWS))
    stage = run.statistics().stages[-1]
    assert (stage.entered, stage.delivered, stage.retried) == (ROWS, ROWS, 0)


@pytest.mark.parametrize("workers", [2, 8, 25])
def test_slow_elements_in_threads_are_delivered_in_order(workers: int) -> None:
    assert fl.from_range(ROWS).map(sleepy).prefetch(threads=workers).collect() == list(range(ROWS))


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("workers", [2, 25])
def test_slow_elements_of_a_filtered_stream_are_delivered_in_order(workers: int) -> None:
    flow: Any = fl.from_iterable(lambda: iter(range(ROWS))).map(sleepy)
    flow = flow.filter(lambda i: i % 3 != 1).batch(7)
    kept = [i for i in range(ROWS) if i % 3 != 1]
    got = [batch.tolist() for batch in flow.prefetch(procs=workers)]
    assert got == [kept[k : k + 7] for k in range(0, len(kept), 7)]


@pytest.mark.usefixtures("mortals")
def test_slow_elements_do_not_delay_others_without_order(tmp_path: Path) -> None:
    def wait_for_the_others(i: int) -> int:
        if i == 0:
            eventually(lambda: len(list(tmp_path.iterdir())) >= 98)
        return i

    got: list[int] = []
    with paced([1]):
        flow = fl.from_range(100).map(wait_for_the_others).prefetch(procs=8, ordered=False)
        for i in flow:
            got.append(i)
            (tmp_path / str(i)).touch()
    assert sorted(got) == list(range(100))
    assert got.index(0) == 98  # but for the one that its worker has in hand behind it


@pytest.mark.usefixtures("mortals")
def test_workers_run_ahead_of_slow_elements_up_to_the_credit(tmp_path: Path) -> None:
    """While the first row waits, the workers run ahead up to the credit."""
    tasks = 4 * (pool.TASKS_PER_WORKER + pool.TASKS_AHEAD)
    ahead = tasks - pool.TASKS_PER_WORKER  # its worker holds a second one, which waits behind it

    def note(i: int) -> int:
        if i == 0:
            eventually(lambda: len(list(tmp_path.iterdir())) >= ahead)
            time.sleep(0.1)  # for more, which do not come
            seen = len(list(tmp_path.iterdir()))
            (tmp_path / "seen").write_text(str(seen))
        else:
            (tmp_path / str(i)).touch()
        return i

    with paced([1]):
        run = iter(fl.from_range(500).map(note).prefetch(procs=4))
        assert next(run) == 0
    assert int((tmp_path / "seen").read_text()) == ahead
    assert list(run) == list(range(1, 500))


@pytest.mark.parametrize("procs", [5, pytest.param(25, marks=pytest.mark.long)])
def test_slow_elements_with_many_processes(procs: int) -> None:
    with closing(iter(fl.from_range(1 << 40).map(sleepy).prefetch(procs=procs))) as run:
        for i, row in enumerate(islice(run, 100 * ROWS)):
            assert row == i
            if i >= ROWS and len(run.statistics().stages[-1].workers) == procs:
                return
    raise AssertionError("some workers never came")

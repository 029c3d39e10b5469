"""Worker deaths: the tasks of dead workers are retried, and the output equals the reference."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import ElementError, Flow, WorkerDied
from flowdsl.runtime.run import Run
from flowdsl.statistics.stages import StageStatistics
from flowdsl.testing.elements import same
from flowdsl.workers import processes
from flowdsl.workers.launching import Child
from flowdsl.workers.processes import Process, Processes, start_process
from flowdsl.workers.worker import Setup
from tests.chaos.dying import dies_once, kill, kills
from tests.paces import paced

AnyFlow = Flow[Any, Any]
Born = list[Child]


ENDS: dict[str, Callable[[], None]] = {
    "exit status 0": lambda: os._exit(0),
    "exit status 3": lambda: os._exit(3),
    "signal SIGKILL": kill,
    "signal SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
}


def last_stage(run: Run[Any]) -> StageStatistics:
    return run.statistics().stages[-1]


def check(flow: AnyFlow, reference: AnyFlow, deaths: int) -> StageStatistics:
    """Check that a run with this many deaths yields the reference; return its stage."""
    with iter(flow) as run:
        got = list(run)
    expected = reference.collect()
    assert same(got, expected)
    stages = run.statistics().stages
    assert sum(stage.deaths for stage in stages) == deaths
    for stage in stages:
        assert stage.entered == stage.delivered + stage.filtered + stage.skipped
        assert stage.in_flight == 0
    return max(stages, key=lambda stage: stage.deaths)


@pytest.fixture
def born(monkeypatch: pytest.MonkeyPatch) -> Born:
    """The workers that start, in their order."""
    started: Born = []

    def spawn(setup: Setup) -> Process:
        worker = start_process(setup)
        started.append(worker.process)
        return worker

    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn))
    return started


class TestOneDeath:
    @pytest.mark.parametrize("how", ENDS)
    def test_of_any_cause_changes_no_element(self, how: str, tmp_path: Path) -> None:
        flow = fl.from_range(60).map(dies_once(tmp_path, 17, end=ENDS[how]))
        stage = check(flow.prefetch(procs=2), flow, deaths=1)
        assert stage.retried > 0
        assert (tmp_path / "17").exists()

    @pytest.mark.usefixtures("mortals")
    def test_repeats_all_tasks_of_the_worker(self, tmp_path: Path) -> None:
        with paced([4]):  # it dies on the first of two tasks in hand
            flow = fl.from_range(40).map(dies_once(tmp_path, 0))
            stage = check(flow.prefetch(procs=1), flow, deaths=1)
        assert stage.retried == 8

    @pytest.mark.usefixtures("mortals")
    @pytest.mark.parametrize("row", [0, 59])
    def test_on_the_first_and_the_last_element(self, row: int, tmp_path: Path) -> None:
        flow = fl.from_range(60).map(dies_once(tmp_path, row))
        check(flow.prefetch(procs=2), flow, deaths=1)

    @pytest.mark.usefixtures("mortals")
    def test_on_several_rows(self, tmp_path: Path) -> None:
        flow = fl.from_range(60).map(dies_once(tmp_path, 3, 30, 31, 59))
        check(flow.prefetch(procs=2), flow, deaths=4)

    CHAINS: ClassVar[dict[str, Callable[[Callable[[Any], Any]], AnyFlow]]] = {
        "batch": lambda f: fl.from_range(50).map(f).batch(4),
        "death in a batch": lambda f: fl.from_range(50).batch(4).map(f),
        "shuffle": lambda f: fl.from_range(50).shuffle(seed=4).map(f).batch(3),
        "window shuffle": lambda f: fl.from_range(50).map(f).shuffle(7).batch(3),
        "random map": lambda f: (
            fl.from_range(50).map(f).random_map(lambda i, rng: i + rng.random()).shuffle()
        ),
        "filter": lambda f: fl.from_range(50).filter(lambda i: i % 3 != 0).map(f).batch(4),
        "stream": lambda f: fl.from_iterable(lambda: iter(range(50))).map(f).batch(4),
        "stream and filter": lambda f: (
            fl.from_iterable(lambda: iter(range(50))).filter(lambda i: i % 3 != 0).map(f).batch(2)
        ),
        "in memory": lambda f: fl.from_items(list(range(50))).shuffle().map(f).batch(4),
        "zip of two in memory": lambda f: (
            fl.from_items(list(range(50)))
            .zip(fl.from_items(list(range(100, 150))).repeat_each(2).take(50))
            .shuffle()
            .map(f)
        ),
        "two pools": lambda f: (
            fl.from_range(50).map(f).shuffle(5).map(lambda i: i + 1000).prefetch(procs=1).map(f)
        ),
        "overlapping windows": lambda f: fl.from_range(50).map(f).window(4, 2).batch(2),
        "epochs": lambda f: fl.from_range(20).shuffle().map(f).repeat(3),
        "threads above": lambda f: (
            fl.from_range(50).map(f).prefetch(procs=2).shuffle(4).map(abs).prefetch(threads=2)
        ),
    }

    @pytest.mark.usefixtures("mortals")
    @pytest.mark.parametrize("name", CHAINS)
    def test_changes_no_random_chain(self, name: str, tmp_path: Path) -> None:
        flow = self.CHAINS[name](dies_once(tmp_path, 7, 11))
        with paced([3, 1, 5]):
            check(flow.prefetch(procs=2), flow, deaths=2)
        assert len(list(tmp_path.iterdir())) == 2

    @pytest.mark.usefixtures("mortals")
    def test_changes_no_order(self, tmp_path: Path) -> None:
        flow = fl.from_range(60).map(dies_once(tmp_path, 7, 40)).prefetch(procs=2, ordered=False)
        assert sorted(flow) == list(range(60))

    @pytest.mark.usefixtures("mortals")
    def test_of_a_worker_that_runs_a_copy(self, tmp_path: Path) -> None:
        def stream() -> Iterator[int]:
            return iter(range(30))

        flow = fl.from_iterable(stream).map(dies_once(tmp_path, 0, 7, 29)).shuffle(5)
        check(flow.replicate(procs=2), flow.replicate(procs=2).take(60), deaths=3)

    @pytest.mark.usefixtures("mortals")
    def test_of_a_copy_reports_skips_once(self, tmp_path: Path) -> None:
        def stream() -> Iterator[int]:
            return iter(range(30))

        die = dies_once(tmp_path, 35)
        kept = fl.from_iterable(stream).map(lambda i: i // (i % 7)).prefetch(on_error="skip")
        with iter(kept.map(lambda i: i + 20).map(die).replicate(procs=1)) as run:
            assert list(run) == [i // (i % 7) + 20 for i in range(30) if i % 7]
        assert (tmp_path / "35").exists()
        assert [skip.error.split(" (")[0] for skip in run.statistics().skips] == [
            f"map(<lambda>) failed on element {i}" for i in range(0, 30, 7)
        ]

    def test_of_all_workers_simultaneously(self, born: Born) -> None:
        def slowly(i: int) -> int:
            time.sleep(0.0005)
            return i

        run = iter(fl.from_range(4000).map(slowly).prefetch(procs=3))
        got = list(
            takewhile(lambda _: len(born) < 3, run)
        )  # the one at which they are three is lost
        for process in list(born):
            process.kill()
        assert [*got, len(got), *run] == list(range(4000))
        assert last_stage(run).deaths == 3

    def test_with_an_undelivered_result_keeps_views_valid(self, born: Born) -> None:
        flow = fl.from_range(400).map(lambda i: np.full(20_000, i)).prefetch(procs=2)
        run, kept = iter(flow), list[Any]()
        for i, x in enumerate(run):
            kept.append(x)
            if i in (5, 100):
                born[i // 100].kill()
        assert len(kept) == 400
        assert all((x == i).all() for i, x in enumerate(kept))
        assert last_stage(run).deaths > 0  # the last may come when nobody waits for more

    def test_between_two_passes_is_harmless(self, born: Born) -> None:
        flow = fl.from_range(200).shuffle().map(lambda i: i).prefetch(procs=2)
        for epoch in range(3):
            assert list(flow.epoch(epoch)) == list(fl.from_range(200).shuffle().epoch(epoch))
            born[-1].kill()
            born[-1].wait()
        assert len(born) == 6


class TestStoppedWorker:
    def test_counts_as_dead_after_a_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "SECONDS_STOPPED", 0.3)

        def stop() -> None:
            os.kill(os.getpid(), signal.SIGSTOP)

        flow = fl.from_range(60).map(dies_once(tmp_path, 20, end=stop))
        check(flow.prefetch(procs=2), flow, deaths=1)

    def test_is_named_in_the_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "SECONDS_STOPPED", 0.1)
        flow = fl.from_range(9).map(lambda i: (i == 5 and os.kill(os.getpid(), signal.SIGSTOP), i))  # type: ignore[func-returns-value]  # for its effect
        with pytest.raises(WorkerDied, match=r"element 5 .* \(stopped for 0\.1 seconds\)"):
            flow.prefetch(procs=1, deaths=1).collect()

    def test_is_not_dead_after_a_short_stop(
        self, born: Born, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "_TICK", 0.05)
        run = iter(fl.from_range(500).map(lambda i: i).prefetch(procs=1))
        got = [next(run)]
        os.kill(born[0].pid, signal.SIGSTOP)
        goes_on = threading.Timer(0.7, os.kill, (born[0].pid, signal.SIGCONT))
        goes_on.start()
        assert [*got, *run] == list(range(500))
        goes_on.join()
        assert last_stage(run).deaths == 0


class TestTimeout:
    def test_ends_late_workers(self, tmp_path: Path) -> None:
        flow = fl.from_range(20).map(dies_once(tmp_path, 7, end=lambda: time.sleep(600)))
        check(flow.prefetch(procs=2, timeout=2), flow, deaths=1)

    def test_is_named_in_the_error(self) -> None:
        flow = fl.from_range(20).map(lambda i: (time.sleep(600 * (i == 7)), i)[1])  # type: ignore[func-returns-value]  # for its effect
        with pytest.raises(
            WorkerDied,
            match=r"on element 7 .* \(at work for more than 2 seconds\)",
        ):
            flow.prefetch(procs=2, timeout=2, deaths=1).collect()

    def test_starts_with_each_element(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "_TICK", 0.05)
        flow = fl.from_range(2).map(lambda i: (time.sleep(0.4), i)[1])  # type: ignore[func-returns-value]  # for its effect
        run = iter(flow.prefetch(procs=1, timeout=20))
        assert list(run) == [0, 1]
        assert last_stage(run).deaths == 0

    def test_does_not_count_the_consumers_time(self) -> None:
        """Tasks that wait for a busy consumer are not late."""
        run = iter(fl.from_range(40).map(lambda i: i).prefetch(procs=1, timeout=1.5))
        got = [next(run)]
        time.sleep(2)
        assert [*got, *run] == list(range(40))
        assert last_stage(run).deaths == 0


class TestRepeatedDeaths:
    @pytest.mark.parametrize("how", ENDS)
    def test_are_an_error_that_names_all_workers(self, how: str) -> None:
        end = ENDS[how]

        def die(i: int) -> int:
            if i == 31:
                end()
            return i

        flow = fl.from_range(60).shuffle(seed=2).map(die)
        order = fl.from_range(60).shuffle(seed=2).collect()
        run = iter(flow.prefetch(procs=2))
        got: list[int] = []
        with pytest.raises(WorkerDied) as caught:
            got.extend(run)
        assert re.fullmatch(
            rf"3 workers died, one after another, at work on element {order.index(31)} of "
            rf"map\(die\) \(row 31 of from_range\(60\)\); the last of them was worker process \d+ "
            rf"\({how}\)",
            str(caught.value),
        )
        assert last_stage(run).deaths == 3
        del got[:]

    @pytest.mark.usefixtures("mortals")
    def test_raise_after_all_elements_before(self) -> None:
        run = iter(fl.from_range(60).map(kills(31)).prefetch(procs=2))
        assert list(islice(run, 31)) == list(range(31))
        with pytest.raises(WorkerDied, match="element 31 of map"):
            next(run)

    @pytest.mark.usefixtures("mortals")
    @pytest.mark.parametrize("deaths", [1, 2, 4])
    def test_are_limited_by_the_deaths_argument(self, deaths: int) -> None:
        with paced([1]):  # or the first death is of several elements, and not known to be of one
            run = iter(fl.from_range(9).map(kills(5)).prefetch(procs=2, deaths=deaths))
            who = f"{deaths} workers" if deaths > 1 else "a worker"
            with pytest.raises(WorkerDied, match=f"^{who} died.* at work on element 5 of map"):
                list(run)
        assert last_stage(run).deaths == deaths

    @pytest.mark.usefixtures("mortals")
    def test_blame_the_task_in_progress(self) -> None:
        """The result of the element before may be lost with its worker."""
        for _ in range(4):
            with paced([1]):
                flow = fl.from_range(9).map(kills(5)).prefetch(procs=1, deaths=1, on_error="skip")
                assert flow.collect() == [0, 1, 2, 3, 4, 6, 7, 8]

    def test_blame_no_element_that_was_not_begun(self, born: Born) -> None:
        """Workers that die while parked, and get an element before the death is known."""
        with paced([1]):
            run = iter(fl.from_range(60).map(lambda i: i).prefetch(procs=2, deaths=1))
            got, pool = [next(run)], run._execution.pools[0]
            while any(worker.held for worker in pool.backend.workers):
                pool._process_events()
            for process in list(born):
                process.kill()
                process.wait()
            assert [*got, *run] == list(range(60))
        assert last_stage(run).deaths == 2

    @pytest.mark.usefixtures("mortals")
    def test_name_the_first_and_the_last_element(self) -> None:
        for row in (0, 19):
            with pytest.raises(WorkerDied, match=f"element {row} of .*row {row} of"):
                fl.from_range(20).map(kills(row)).prefetch(procs=2, deaths=1).collect()

    @pytest.mark.usefixtures("mortals")
    def test_on_a_batch(self) -> None:
        flow = fl.from_range(40).batch(4).map(kills(18)).prefetch(procs=2)
        with pytest.raises(WorkerDied, match=r"element 4 of map.*row 16 of .* to row 19"):
            flow.collect()

    @pytest.mark.usefixtures("mortals")
    def test_on_a_stream_element(self) -> None:
        flow = fl.from_iterable(lambda: iter(range(40))).map(kills(18)).prefetch(procs=2)
        run = iter(flow)
        assert list(islice(run, 18)) == list(range(18))
        with pytest.raises(WorkerDied, match="element 18 of map"):
            next(run)

    @pytest.mark.usefixtures("mortals")
    def test_of_a_worker_that_runs_a_copy(self) -> None:
        copies = fl.from_iterable(lambda: iter(range(12))).map(kills(7)).replicate(procs=2)
        run = iter(copies)
        with pytest.raises(WorkerDied, match="element 7 of map"):
            list(run)
        assert run.position == 14

    def test_of_workers_before_they_are_ready(self) -> None:
        class Poison:
            def __reduce__(self) -> tuple[Any, ...]:
                return os._exit, (4,)

        poison = Poison()
        flow = fl.from_range(5).map(lambda i: (i, poison)).prefetch(procs=2)
        with pytest.raises(WorkerDied, match=r"before it was ready \(exit status 4\)"):
            flow.collect()

    def test_of_workers_before_they_read_a_task(self) -> None:
        """An element whose arrival kills workers fails, too, and is not retried forever."""

        class Deadly:
            def __reduce__(self) -> tuple[Any, ...]:
                return _end_worker, (os.getpid(),)

        items: list[Any] = [*range(6), Deadly(), 7]
        flow = fl.from_items(items).map(lambda x: x).prefetch(procs=2, on_error="skip")
        assert flow.collect() == [0, 1, 2, 3, 4, 5, 7]


def _end_worker(consumer: int) -> None:
    if os.getpid() != consumer:
        os._exit(5)


class TestSkippedAfterDeaths:
    @pytest.mark.usefixtures("mortals")
    @pytest.mark.parametrize("deaths", [1, 3])
    def test_only_the_element_is_skipped(self, deaths: int) -> None:
        flow = fl.from_range(60).map(kills(0, 7, 8, 30, 59))
        run = iter(flow.prefetch(procs=2, on_error="skip", deaths=deaths))
        assert list(run) == [i for i in range(60) if i not in (0, 7, 8, 30, 59)]
        stage = last_stage(run)
        assert (stage.entered, stage.delivered, stage.skipped) == (60, 55, 5)

    @pytest.mark.usefixtures("mortals")
    def test_the_skip_is_reported_once_in_order_with_its_cause(self) -> None:
        reported: list[ElementError] = []

        def fail_or_die(i: int) -> int:
            if i in (9, 33):
                raise ValueError(i)
            if i in (8, 32, 34):
                kill()
            return i

        flow = fl.from_range(40).map(fail_or_die).prefetch(procs=2, on_error=reported.append)
        run = iter(flow)
        assert list(run) == [i for i in range(40) if i not in (8, 9, 32, 33, 34)]
        assert [error.origin for error in reported] == [
            f"row {i} of from_range(40)" for i in (8, 9, 32, 33, 34)
        ]
        assert [type(error.__cause__) for error in reported] == [
            WorkerDied, ValueError, WorkerDied, ValueError, WorkerDied,
        ]  # fmt: skip
        assert [skip.error for skip in run.statistics().skips] == list(map(str, reported))
        assert str(reported[1]).endswith(": ValueError(9); the element was 9")

    @pytest.mark.usefixtures("mortals")
    def test_the_handler_may_raise(self) -> None:
        def refuse(error: ElementError) -> None:
            raise error

        run = iter(fl.from_range(40).map(kills(12)).prefetch(procs=2, on_error=refuse))
        assert list(islice(run, 12)) == list(range(12))
        with pytest.raises(ElementError, match="on element 12") as caught:
            next(run)
        assert isinstance(caught.value.__cause__, WorkerDied)

    @pytest.mark.usefixtures("mortals")
    @pytest.mark.parametrize(
        "source",
        [
            lambda: fl.from_range(50),
            lambda: fl.from_iterable(lambda: iter(range(50))),
            lambda: fl.from_items(list(range(50))),
        ],
        ids=["positions", "stream", "in memory"],
    )
    def test_batches_contain_the_other_elements(self, source: Callable[[], AnyFlow]) -> None:
        flow = source().map(kills(3, 20, 21, 49)).batch(4).prefetch(procs=2, on_error="skip")
        others = [i for i in range(50) if i not in (3, 20, 21, 49)]
        expected = [others[k : k + 4] for k in range(0, len(others), 4)]
        assert [batch.tolist() for batch in flow] == expected

    @pytest.mark.usefixtures("mortals")
    def test_the_position_after_a_shuffle_is_correct(self) -> None:
        flow = fl.from_range(50).shuffle(seed=3).map(kills(3, 20))
        expected = [i for i in fl.from_range(50).shuffle(seed=3) if i not in (3, 20)]
        assert flow.prefetch(procs=2, on_error="skip").collect() == expected

    @pytest.mark.usefixtures("mortals")
    def test_an_operator_in_the_consumer_skips_it(self) -> None:
        """The counting and the skipping operators run in the consumer, above a filter."""
        reported: list[ElementError] = []
        flow = fl.from_range(30).map(kills(5, 6)).filter(lambda i: i % 2 == 0).enumerate()
        run = iter(flow.prefetch(procs=2, on_error=reported.append))
        expected = [i for i in range(0, 30, 2) if i != 6]
        assert [x for _, x in run] == expected
        assert [error.origin for error in reported] == [
            f"row {i} of from_range(30)" for i in (5, 6)
        ]

    @pytest.mark.usefixtures("mortals")
    def test_without_order(self) -> None:
        flow = fl.from_range(60).map(kills(7, 30))
        assert sorted(flow.prefetch(procs=2, on_error="skip", ordered=False)) == [
            i for i in range(60) if i not in (7, 30)
        ]

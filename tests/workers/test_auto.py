"""Tuned numbers of workers: elements do not depend on the number or its changes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count, islice
from typing import Any
from unittest import mock

import pytest

import flowdsl as fl
from flowdsl import Flow, InvalidFlow
from flowdsl.resources import cores
from flowdsl.workers import task_sizer
from flowdsl.workers.tuner import Span, Tuner
from tests.children import workers_of
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowdsl.resources.cores.cores", lambda: 4)


@contextmanager
def changing(*counts: int) -> Iterator[list[int]]:
    """Use small tasks, and after each the next of these numbers of workers."""
    said: list[int] = []
    chance = random.Random(0)

    def observe(self: Tuner, span: Span, in_flight: int) -> None:
        self.count = counts[len(said)] if len(said) < len(counts) else chance.randint(1, self.most)
        said.append(self.count)

    small = mock.patch.object(task_sizer, "MOST_PER_TASK", 5)
    with mock.patch.object(Tuner, "observe", observe), small:
        yield said


def drawn(i: int, rng: Any) -> tuple[int, float]:
    time.sleep(0.0002)
    return i, float(rng.random())


def odd(pair: tuple[int, float]) -> bool:
    return pair[0] % 2 == 1


def ratio(pair: tuple[int, float]) -> float:
    return 1 / (pair[0] % 7 - 3) + pair[1]


ROWS = fl.from_range(400).shuffle(seed=1).random_map(drawn, seed=2)
FLOWS: dict[str, Flow[Any, Any]] = {
    "by position": ROWS,
    "in batches": ROWS.batch(3, collate=list),
    "with gaps": ROWS.filter(odd),
    "as a stream": fl.from_iterable(range(400)).random_map(drawn, seed=2),
    "above a buffer": ROWS.shuffle(buffer=9, seed=3).map(odd),
}


KINDS: dict[str, dict[str, Any]] = {"procs": {"procs": "auto"}, "threads": {"threads": "auto"}}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.long if kind == "procs" else []) for kind in KINDS],
)
@pytest.mark.parametrize("name", FLOWS)
def test_elements_do_not_depend_on_the_number_of_workers(name: str, kind: str) -> None:
    flow = FLOWS[name]
    auto = flow.prefetch(**KINDS[kind])
    numbers = 2 if name == "above a buffer" else 4  # two parts divide the four cores
    with changing() as said:
        for epoch in count():  # a number is said when all workers are there, however soon that is
            assert list(auto.epoch(epoch)) == list(flow.epoch(epoch))
            if len(set(said)) == numbers:
                break
        run = iter(auto)
        first = list(islice(run, 20))
        assert [*first, *auto.resume(run.state_dict())] == flow.collect()
        run.close()


def test_failures_are_handled_with_tuned_workers() -> None:
    flow = ROWS.map(ratio)
    with changing():
        skipping = flow.prefetch(procs="auto", on_error="skip")
        assert skipping.collect() == flow.prefetch(on_error="skip").collect()
        with pytest.raises(fl.ElementError) as here:
            flow.collect()
        with pytest.raises(fl.ElementError) as there:
            flow.prefetch(procs="auto").collect()
        assert (there.value.position, there.value.origin) == (
            here.value.position,
            here.value.origin,
        )


def once_dead(folder: str, i: int) -> int:
    mark = os.path.join(folder, str(i))
    if i % 97 == 5 and not os.path.exists(mark):
        open(mark, "x").close()
        os.kill(os.getpid(), 9)
    return i


def test_deaths_are_handled_with_tuned_workers(tmp_path: Any) -> None:
    flow = fl.from_range(400).map(partial(once_dead, str(tmp_path)))
    with changing():
        run = iter(flow.prefetch(procs="auto"))
        assert list(run) == list(range(400))
    assert run.statistics().stages[-1].deaths == 5


def test_workers_that_do_not_pay_are_dismissed() -> None:
    flow = fl.from_range(1 << 40).random_map(drawn, seed=2).prefetch(procs="auto")
    run, pays = iter(flow), 4

    def observe(self: Tuner, span: Span, in_flight: int) -> None:
        self.count = pays

    def go_on_until_each_has_worked() -> None:
        for _ in islice(run, 0, 1_000_000, 100):
            workers = run.statistics().stages[-1].workers
            if len(workers) == pays and all(worker.elements for worker in workers):
                return
        raise AssertionError(f"there are not {pays} workers")

    with mock.patch.object(Tuner, "observe", observe), closing(run):
        go_on_until_each_has_worked()
        pays = 1
        go_on_until_each_has_worked()
        assert eventually(lambda: len(workers_of()) == 1)
        (stage,) = run.statistics().stages
        assert stage.dismissed.elements > 0
        assert stage.auto
        assert 0 < stage.utilisation <= 1
        assert "1 process (auto)" in str(run.statistics())


def workers_in(run: fl.Run[Any]) -> int:
    return len(run.statistics().stages[-1].workers)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_pass_begins_with_the_tuned_number(kind: str) -> None:
    flow = fl.from_range(5000).map(abs).prefetch(**KINDS[kind])
    with changing(*[3] * 10_000):
        list(flow)
    with mock.patch.object(Tuner, "observe"):  # nothing is found from here on
        run = iter(flow)
        # slowly, so that a busy machine starts the workers before the rows are all read
        assert eventually(lambda: next(run) is not None and _rested() and workers_in(run) == 3)
        run.close()


def _rested() -> bool:
    time.sleep(0.05)
    return True


def waiting(i: int) -> int:
    time.sleep(0.002)
    return i


def test_the_tuner_finds_a_good_number() -> None:
    """Rows that sleep need no core: four workers are four times as fast."""
    flow = fl.from_range(1 << 40).map(waiting).prefetch(threads="auto")
    with closing(iter(flow)) as run:
        for _ in islice(run, 0, 60_000, 100):
            if workers_in(run) == 4:
                return
    raise AssertionError("four workers were not found to pay")


def test_titles_show_auto() -> None:
    flow = fl.from_range(9).map(abs).prefetch(procs="auto", memory=10**6)
    assert repr(flow) == "from_range(9).map(abs).prefetch(procs='auto', memory=1000000)"
    assert "in up to 4 worker processes: positions go there" in str(flow.explain())
    threads = fl.from_range(9).map(abs).prefetch(threads="auto").explain()
    assert "in up to 4 threads: positions go there" in str(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_other_strings_are_refused(kind: str) -> None:
    many: dict[str, Any] = {kind: "many"}
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(9).prefetch(**many)
    assert str(caught.value) == f"prefetch: {kind} must be an int >= 0 or \"auto\", got 'many'"


def test_auto_uses_at_most_one_worker_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    node: Any = fl.from_range(9).prefetch(procs="auto").node
    assert node.workers.count == cores.cores()

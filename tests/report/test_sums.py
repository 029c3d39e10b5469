from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.report.sums import as_one, since, together
from flowdsl.resources.worker_kinds import PROCESSES
from flowdsl.statistics.run import Occupancy, RunStatistics, Skip
from flowdsl.statistics.stages import OperatorCost, StageStatistics, WorkerStatistics
from tests.report.books import SECONDS, stage, times

counts, seconds = st.integers(0, 1000), st.integers(1, 64).map(lambda k: k / 8)  # exact in binary
FIELDS = ("entered", "delivered", "filtered", "skipped", "retried", "deaths", "nbytes")


@st.composite
def figures(draw: Any) -> RunStatistics:
    """Statistics of a run over one stage with two workers."""
    return RunStatistics(
        elements=draw(counts),
        seconds=draw(seconds),
        consumer_seconds=draw(seconds),
        stages=(
            StageStatistics(
                operators=("map(f)",),
                kind=PROCESSES,
                seconds=draw(seconds),
                workers=tuple(
                    WorkerStatistics(draw(counts), *(draw(seconds) for _ in range(3)))
                    for _ in range(2)
                ),
                dismissed=WorkerStatistics(draw(counts), *(draw(seconds) for _ in range(3))),
                worker_seconds=draw(seconds),
                input_seconds=draw(seconds),
                waited=draw(seconds),
                fill=draw(st.integers(0, 8)) / 8,
                times=times(draw(st.dictionaries(seconds, st.integers(1, 9)))),
                costs=(OperatorCost("map(f)", draw(counts), draw(seconds)),),
                **{name: draw(counts) for name in FIELDS},
            ),
        ),
        occupancy=(Occupancy("pack(4)", draw(counts), draw(counts), 2),),
        waited_for_core=draw(seconds),
    )


@given(figures(), figures())
def test_a_difference_undoes_a_sum(one: RunStatistics, other: RunStatistics) -> None:
    back = since(together(one, other), other)
    (stage,), (before,) = back.stages, one.stages
    assert stage.fill == pytest.approx(before.fill)
    assert attrs.evolve(back, stages=(attrs.evolve(stage, fill=before.fill),)) == one


def test_a_stopped_worker_is_not_in_the_difference() -> None:
    three, one = (stage("map(f)", busy=(0.5,) * n) for n in (3, 1))
    then, now = (RunStatistics(9, 1.0, 0.0, (each,)) for each in (three, one))
    assert [worker.busy for worker in since(now, then).stages[0].workers] == [0.0]


@given(figures(), figures())
def test_a_sum_is_two_runs_in_sequence(one: RunStatistics, other: RunStatistics) -> None:
    both = together(one, other)
    assert (both.elements, both.seconds) == (
        one.elements + other.elements,
        one.seconds + other.seconds,
    )
    assert both.consumer_seconds == one.consumer_seconds + other.consumer_seconds
    (stage,), (a,), (b,) = both.stages, one.stages, other.stages
    for name in (*FIELDS, "seconds", "waited", "input_seconds"):
        assert getattr(stage, name) == getattr(a, name) + getattr(b, name)
    assert stage.busy == a.busy + b.busy
    filled = a.fill * a.seconds + b.fill * b.seconds
    assert stage.fill * stage.seconds == pytest.approx(filled)
    assert stage.costs[0].calls == a.costs[0].calls + b.costs[0].calls


def test_quantiles_of_sums_and_differences_are_exact() -> None:
    def made(counts: dict[float, int]) -> RunStatistics:
        stage = StageStatistics(("f",), 1.0, 9, 9, times=times(counts))
        return RunStatistics(9, 1.0, 0.0, (stage,))

    (both,) = together(made({0.001: 60}), made({0.001: 10, 0.5: 30})).stages
    assert (both.p50, both.p99) == pytest.approx((0.001, 0.5), rel=0.05)
    (later,) = since(made({0.001: 60, 0.5: 30}), made({0.5: 30})).stages
    assert (later.p50, later.p99) == pytest.approx((0.001, 0.001), rel=0.05)
    (never,) = since(made({0.001: 3}), made({0.001: 3})).stages
    assert (never.times, never.p99) == ((), 0.0)


def test_skips_of_both_runs_are_listed() -> None:
    one, other = (RunStatistics(1, 1.0, 0.0, (), 3, (Skip(name),)) for name in "ab")
    assert together(one, other).skipped == 6
    assert together(one, other).skips == (Skip("a"), Skip("b"))
    assert since(one, other).skips == (Skip("a"),)


def test_listed_skips_are_limited() -> None:
    one, other = (RunStatistics(1, 1.0, 0.0, (), 60, (Skip(name),) * 60) for name in "ab")
    both = together(one, other)
    assert (both.skipped, both.skips) == (120, (Skip("a"),) * 60 + (Skip("b"),) * 40)


def test_copies_are_added_but_not_their_seconds() -> None:
    cost = OperatorCost("map(f)", 10, 2.0)
    copies = [
        attrs.evolve(
            stage("map(f)", busy=(busy,), waited=1.0, fill=fill, deaths=1, nbytes=5, in_flight=2),
            delivered=n,
            times=times({busy: 1}),
            costs=(cost,),
        )
        for busy, n, fill in ((3.0, 10, 0.25), (5.0, 20, 0.75), (4.0, 30, 0.5))
    ]
    one = as_one(copies)
    assert [worker.busy for worker in one.workers] == [3.0, 5.0, 4.0]
    assert (one.delivered, one.in_flight, one.deaths, one.nbytes) == (60, 6, 3, 15)
    assert (one.seconds, one.waited) == (SECONDS, 3.0)
    assert one.fill == pytest.approx(0.5)
    assert (one.p50, one.p99) == pytest.approx((4.0, 5.0), rel=0.1)
    assert one.costs == (OperatorCost("map(f)", 30, 6.0),)
    assert as_one(copies[:1]) == copies[0]


def test_a_stage_that_had_not_started_counts_fully() -> None:
    late = StageStatistics(("f",), 1.0, 9, 9)
    now, then = RunStatistics(9, 2.0, 0.0, (late,)), RunStatistics(1, 1.0, 0.0, ())
    assert since(now, then).stages == (late,)


def test_replaced_workers_never_show_negative_counts() -> None:
    def made(*busy: float) -> RunStatistics:
        workers = tuple(WorkerStatistics(1, each) for each in busy)
        stage = StageStatistics(("f",), 1.0, 9, 9, workers=workers)
        return RunStatistics(9, 1.0, 0.0, (stage,))

    assert [w.busy for w in since(made(1.0, 0.5), made(0.5, 2.0)).stages[0].workers] == [0.5, 0.0]

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.report.sums import since, together
from flowdsl.runtime.statistics import (
    OperatorCost,
    RunStatistics,
    Skip,
    StageStatistics,
    WorkerStatistics,
)

counts, seconds = st.integers(0, 1000), st.integers(1, 64).map(lambda k: k / 8)  # exact in binary
FIELDS = ("entered", "delivered", "filtered", "skipped", "retried", "deaths", "nbytes")


@st.composite
def figures(draw: Any) -> RunStatistics:
    """Of a run over one stage of two workers."""
    return RunStatistics(
        elements=draw(counts),
        seconds=draw(seconds),
        consumer_seconds=draw(seconds),
        stages=(
            StageStatistics(
                operators=("map(f)",),
                place="processes",
                seconds=draw(seconds),
                workers=tuple(
                    WorkerStatistics(draw(counts), draw(seconds), draw(seconds)) for _ in range(2)
                ),
                input_seconds=draw(seconds),
                waited=draw(seconds),
                fill=draw(st.integers(0, 8)) / 8,
                p50=1.0,
                p99=2.0,
                costs=(OperatorCost("map(f)", draw(counts), draw(seconds)),),
                **{name: draw(counts) for name in FIELDS},
            ),
        ),
    )


@given(figures(), figures())
def test_a_difference_undoes_a_sum(one: RunStatistics, other: RunStatistics) -> None:
    back = since(together(one, other), other)
    (stage,), (before,) = back.stages, one.stages
    assert stage.fill == pytest.approx(before.fill)
    assert attrs.evolve(back, stages=(attrs.evolve(stage, fill=before.fill),)) == one


@given(figures(), figures())
def test_a_sum_is_one_after_the_other(one: RunStatistics, other: RunStatistics) -> None:
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


def test_quantiles_are_those_of_the_longer_pass() -> None:
    def made(delivered: int, p99: float) -> RunStatistics:
        stage = StageStatistics(("f",), "processes", 1.0, 9, delivered, p99=p99)
        return RunStatistics(delivered, 1.0, 0.0, (stage,))

    assert together(made(10, 1.0), made(90, 2.0)).stages[0].p99 == 2.0
    assert together(made(90, 1.0), made(10, 2.0)).stages[0].p99 == 1.0
    assert since(made(90, 1.0), made(10, 2.0)).stages[0].p99 == 1.0


def test_what_was_left_out_is_told_of_both() -> None:
    one, other = (RunStatistics(1, 1.0, 0.0, (), 3, (Skip(name),)) for name in "ab")
    assert together(one, other).skipped == 6
    assert together(one, other).skips == (Skip("a"), Skip("b"))
    assert since(one, other).skips == (Skip("a"),)


def test_a_stage_that_had_not_begun_counts_whole() -> None:
    late = StageStatistics(("f",), "processes", 1.0, 9, 9)
    now, then = RunStatistics(9, 2.0, 0.0, (late,)), RunStatistics(1, 1.0, 0.0, ())
    assert since(now, then).stages == (late,)


def test_workers_that_came_in_the_place_of_others_have_done_no_less_than_nothing() -> None:
    def made(*busy: float) -> RunStatistics:
        workers = tuple(WorkerStatistics(1, each) for each in busy)
        stage = StageStatistics(("f",), "processes", 1.0, 9, 9, workers=workers)
        return RunStatistics(9, 1.0, 0.0, (stage,))

    assert [w.busy for w in since(made(1.0, 0.5), made(0.5, 2.0)).stages[0].workers] == [0.5, 0.0]

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.report.shares import Shares, inverse
from tests.report.books import SECONDS, run, stage

seconds = st.floats(0, SECONDS)


@st.composite
def runs(draw: Any) -> Any:
    stages = [
        stage("map(f)", busy=(1.0,), waited=draw(seconds), input_seconds=draw(seconds))
        for _ in range(draw(st.integers(0, 3)))
    ]
    if draw(st.booleans()):
        stages.append(stage("batch(8)", costs=draw(st.none() | st.just({"batch(8)": 3.0}))))
    return run(*stages, consumer=draw(seconds))


@given(runs())
def test_the_shares_add_up_to_one(figures: Any) -> None:
    shares = Shares(figures)
    parts = shares.thread
    assert all(part >= 0 for part in parts.values())
    assert sum(parts.values()) + shares.blocked == pytest.approx(1.0)


def test_reading_for_a_stage_excludes_waiting_for_the_stage_below() -> None:
    first = stage("map(f)", busy=(1.0,), waited=6.0, input_seconds=1.0)
    second = stage("map(g)", busy=(1.0,), waited=0.5, input_seconds=7.5)
    assert Shares(run(first, second)).inputs == pytest.approx({0: 0.1, 1: 0.15})


def test_reading_for_two_branches_adds_up() -> None:
    branches = [stage("map(f)", busy=(1.0,), input_seconds=3.0) for _ in range(2)]
    assert Shares(run(*branches)).thread["input"] == pytest.approx(0.6)


def test_reading_for_a_chain_is_counted_once() -> None:
    chain = [stage("map(f)", busy=(1.0,), input_seconds=8.0) for _ in range(2)]
    assert Shares(run(*chain)).thread["input"] == pytest.approx(0.8)


def test_operators_that_supply_workers_are_not_hosted() -> None:
    supply, last = stage("from_iterable(words)"), stage("flat_map(f)")
    pool = stage("map(f)", busy=(1.0,), input_seconds=4.0)
    assert list(Shares(run(supply, pool, last)).hosted) == [2]
    beside = stage("map(f)", busy=(1.0,))
    assert list(Shares(run(supply, beside, last)).hosted) == [0, 2]


def test_time_outside_of_operators_is_handing_over() -> None:
    pool = stage("map(f)", busy=(1.0,), waited=2.0)
    timed = stage("batch(8)", costs={"batch(8)": 3.0})
    parts = Shares(run(pool, timed, consumer=1.0)).thread
    assert parts == pytest.approx(
        {"consumer": 0.1, "input": 0.0, "hosted": 0.3, "handing over": 0.4}
    )


def test_others_is_the_greatest_other_share() -> None:
    slow = stage("map(f)", busy=(9.0, 9.0), waited=5.0)
    fast = stage("map(g)", busy=(2.0, 2.0))
    shares = Shares(run(slow, fast, consumer=4.0))
    assert shares.greatest_other(0) == pytest.approx(0.5)  # the thread
    assert shares.greatest_other(1) == pytest.approx(0.9)
    assert shares.greatest_other("consumer") == pytest.approx(0.9)
    assert shares.most_utilised == pytest.approx(0.9)


def test_an_idle_part_sustains_any_rate() -> None:
    assert (inverse(0.5), inverse(0.0)) == (2.0, float("inf"))

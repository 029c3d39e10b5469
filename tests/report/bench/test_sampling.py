"""Samples of the costs of a flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.errors import InvalidFlow
from flowdsl.executor import codegen
from flowdsl.nodes import AnyNode
from flowdsl.report.bench.sampling import Kind, Part, Sample, Size, sample

TICK, SLOW = 1e-6, 1e-3


class Clock:
    """A clock that advances by a tick at each look, and by what functions say they take.

    The machine's clock also counts what other programs take, so exact costs need this one.
    """

    now = 0.0

    def __call__(self) -> float:
        self.now += TICK
        return self.now


CLOCK = Clock()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", CLOCK)
    monkeypatch.setattr(codegen, "perf_counter", CLOCK)
    uncached = vars(codegen)["_loop"].__wrapped__  # compiled loops keep the clock
    monkeypatch.setattr(codegen, "_loop", uncached)
    monkeypatch.setattr("flowdsl.report.bench.reference.waited_for_core", lambda: 0.0)


def quick(i: int) -> int:
    return i


def slow(i: int) -> int:
    CLOCK.now += SLOW
    return i


def sampled(node: AnyNode, *kinds: Kind, **options: Any) -> dict[str, Sample]:
    return {one.part.title: one for one in sample(node, 0.0, kinds, **options)}


@pytest.mark.usefixtures("clock")
def test_each_operator_has_its_cost() -> None:
    flow = fl.from_range(100).map(quick).map(slow).batch(2).repeat()
    found = sampled(flow.node, "operator", "flow")
    assert list(found) == [
        *("from_range(100)", "map(quick)", "map(slow)", "batch(2)"),
        "the flow, in one process",
    ]
    assert found["map(slow)"].part == Part("operator", 3, "map(slow)")
    seconds = {title: one.ratio * one.reference for title, one in found.items()}
    assert seconds["map(quick)"] == pytest.approx(2 * TICK)
    assert seconds["map(slow)"] == pytest.approx(2 * (SLOW + TICK))  # of the two rows of a batch
    assert seconds["the flow, in one process"] == pytest.approx(2 * SLOW, rel=0.01)


@pytest.mark.usefixtures("clock")
def test_operators_of_a_hosted_part_have_costs() -> None:
    flow = fl.from_range(20).filter(bool).flat_map(lambda i: [slow(i)] * 2).shuffle(4, seed=1)
    found = sampled(flow.repeat().node, "operator")
    assert found["flat_map(<lambda>)"].ratio > 5 * found["filter(bool)"].ratio > 0


def test_a_sample_of_another_takes_its_sizes() -> None:
    flow = fl.from_range(100).map(quick).repeat()
    whole = Part("flow", 0, "the flow, in one process")
    found = sampled(flow.node, "operator", sizes={whole: Size(3, 7)})
    assert {one.size for one in found.values()} == {Size(3, 7)}


def test_only_the_kinds_that_are_asked_for() -> None:
    flow = fl.from_range(100).map(quick).prefetch(procs=2).repeat()
    assert list(sampled(flow.node, "flow")) == ["the flow, in one process"]
    assert sampled(flow.node) == {}


def test_the_cost_of_transport_depends_on_the_elements() -> None:
    small = fl.from_range(100).map(quick).prefetch(procs=2).repeat()
    large = fl.from_range(4).map(lambda i: np.full(1 << 20, i)).prefetch(procs=2).repeat()
    found = [sampled(flow.node, "transport")["from 2 worker processes"] for flow in (small, large)]
    assert 0 < 10 * found[0].ratio < found[1].ratio


def test_the_transport_replays_the_first_elements() -> None:
    calls: list[int] = []

    def recorded(i: int) -> int:
        calls.append(i)
        return i

    flow = fl.from_range(1000).map(recorded).prefetch(procs=2).repeat()
    found = sampled(flow.node, "transport")["from 2 worker processes"]
    assert found.size.elements > len(calls) == 64


def test_an_unordered_flow_and_threads() -> None:
    flow = fl.from_range(9).prefetch(threads=1, ordered=False).repeat()
    assert "from_range(9)" in sampled(flow.node, "operator", "transport")


def test_a_source_that_is_read_once_is_refused() -> None:
    flow = fl.from_iterable(iter([1, 2])).map(quick)
    with pytest.raises(InvalidFlow, match=r"^bench: from_iterable\(.*\) yields its elements only"):
        sample(flow.node, 0.0)

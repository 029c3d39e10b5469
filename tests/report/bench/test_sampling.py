"""Samples of the costs of a flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import AnyNode
from flowdsl.report.bench.sampling import Kind, Part, Sample, Size, sample
from tests.report.clock import CLOCK, TICK, simulated
from tests.waiting import soonest

SLOW = 1e-3
WORKERS = "from 2 worker processes"


@pytest.fixture
def clock() -> Iterator[None]:
    with simulated():
        yield


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

    def of_small_to_large() -> float:
        both = [sampled(flow.node, "transport")[WORKERS].ratio for flow in (small, large)]
        return both[0] / both[1]

    assert 0 < soonest(of_small_to_large, 0.1) < 0.1


def test_the_transport_replays_the_first_elements() -> None:
    calls: list[int] = []

    def recorded(i: int) -> int:
        calls.append(i)
        return i

    flow = fl.from_range(1000).map(recorded).prefetch(procs=2).repeat()
    sizes = {Part("transport", 0, WORKERS): Size(1, 100)}
    found = sampled(flow.node, "transport", sizes=sizes)[WORKERS]
    assert found.size == Size(1, 100)
    assert len(calls) == 64


def test_an_unordered_flow_and_threads() -> None:
    flow = fl.from_range(9).prefetch(threads=1, ordered=False).repeat()
    assert "from_range(9)" in sampled(flow.node, "operator", "transport")


def test_a_source_that_is_read_once_is_refused() -> None:
    flow = fl.from_iterable(iter([1, 2])).map(quick)
    with pytest.raises(InvalidFlow, match=r"^bench: from_iterable\(.*\) yields its elements only"):
        sample(flow.node, 0.0)

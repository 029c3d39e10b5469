"""Samples of the costs of a flow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import AnyNode
from flowdsl.report.bench.sampling import Kind, Part, Sample, Size, sample


def quick(i: int) -> int:
    return i


def slow(i: int) -> int:
    time.sleep(0.001)
    return i


def sampled(node: AnyNode, *kinds: Kind, **options: Any) -> dict[str, Sample]:
    return {one.part.title: one for one in sample(node, 0.0, kinds, **options)}


def test_each_operator_has_its_cost() -> None:
    flow = fl.from_range(100).map(quick).map(slow).batch(2).repeat()
    found = sampled(flow.node, "operator", "flow")
    assert list(found) == [
        *("from_range(100)", "map(quick)", "map(slow)", "batch(2)"),
        "the flow, in one process",
    ]
    assert found["map(slow)"].part == Part("operator", 3, "map(slow)")
    assert found["map(slow)"].ratio > 5 * found["map(quick)"].ratio > 0
    assert found["the flow, in one process"].ratio > 0.8 * found["map(slow)"].ratio
    assert found["map(slow)"].ratio * found["map(slow)"].reference > 0.0019  # of two rows


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


def test_the_transport_is_that_of_the_elements() -> None:
    small = fl.from_range(100).map(slow).prefetch(procs=2).repeat()
    large = fl.from_range(4).map(lambda i: np.full(1 << 20, i)).prefetch(procs=2).repeat()
    found = [sampled(flow.node, "transport")["from 2 worker processes"] for flow in (small, large)]
    assert 0 < 10 * found[0].ratio < found[1].ratio
    assert found[0].ratio * found[0].reference < 0.001  # ``slow`` does not run


def test_an_unordered_flow_and_threads() -> None:
    flow = fl.from_range(9).prefetch(threads=1, ordered=False).repeat()
    assert "from_range(9)" in sampled(flow.node, "operator", "transport")


def test_a_source_that_is_read_once_is_refused() -> None:
    flow = fl.from_iterable(iter([1, 2])).map(quick)
    with pytest.raises(InvalidFlow, match=r"^bench: from_iterable\(.*\) yields its elements only"):
        sample(flow.node, 0.0)

"""Costs on a file, and what has become slower."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import InvalidArgument
from flowdsl.report.bench.comparing import Change, changes
from flowdsl.report.bench.costs import Costs, FlowCosts, PartCosts, costs_of, load
from flowdsl.report.bench.sampling import Part, Sample, Size

FLOW = fl.from_range(9).map(abs).map(bin)
MAP = Part("operator", 2, "map(abs)")
SIZE = Size(2, 3)

ratios = st.floats(1e-6, 1e3)


KINDS = {"loops": 0.7, "copies in memory": 0.5}


def _sample(part: Part, ratio: float, reference: float = 0.001) -> Sample:
    return Sample(part, SIZE, ratio, reference, KINDS)


def costs(*operators: float, transport: float | None = None) -> FlowCosts:
    """The costs of a flow whose operators have these ratios, in one process."""
    parts = [Part("operator", k, f"map({k})") for k in range(len(operators))]
    samples = [
        Sample(part, SIZE, ratio, 0.001, KINDS)
        for part, ratio in zip(parts, operators, strict=True)
    ]
    if transport is not None:
        samples.append(
            Sample(Part("transport", 0, "from 1 process"), SIZE, transport, 0.001, KINDS)
        )
    return costs_of(FLOW.node, [samples])


def test_costs_are_medians_over_processes() -> None:
    found = costs_of(
        FLOW.node, [[Sample(MAP, SIZE, r, 0.01 * r, {"loops": r})] for r in (4.0, 1.0, 2.0)]
    )
    assert found[MAP] == PartCosts(MAP, SIZE, (4.0, 1.0, 2.0), 0.02, {"loops": 2.0})
    assert (found[MAP].ratio, found[MAP].seconds, found[MAP].spread) == (2.0, 0.04, 0.5)
    assert found.operators[-1].startswith("map(bin)")


@given(st.lists(ratios, min_size=1, max_size=5))
def test_unchanged_costs_are_not_slower(of: list[float]) -> None:
    for one in changes(costs(*of), costs(*of)):
        assert not one.is_slower(0.01)
        assert not one.is_suspicious(0.01)


@given(ratios, st.floats(0.01, 10), st.floats(0.01, 10))
def test_a_part_is_slower_above_the_limit(ratio: float, by: float, limit: float) -> None:
    (one,) = changes(costs(ratio), costs(ratio * (1 + by)))
    assert one.relative == pytest.approx(by)
    if abs(by / limit - 1) > 1e-6:
        assert one.is_slower(limit) == (by > limit)
    if by > limit:
        assert one.is_suspicious(limit)


def test_a_faster_part_is_not_slower() -> None:
    (one,) = changes(costs(2.0), costs(1.0))
    assert one.relative == -0.5
    assert not one.is_slower(0.1)


def test_an_operator_of_a_small_share_does_not_count() -> None:
    large, small = changes(costs(1.0, 0.001), costs(1.0, 0.01))
    assert large.counts
    assert not small.counts
    assert not small.is_slower(0.1)
    assert not small.is_suspicious(0.1)


def test_the_transport_counts_whatever_its_share() -> None:
    *_, one = changes(costs(1.0, transport=0.001), costs(1.0, transport=0.002))
    assert one.is_slower(0.1)


def test_costs_of_another_flow_are_refused() -> None:
    before = costs_of(FLOW.node, [])
    for other, message in [
        (fl.from_range(9).map(abs).map(hex), "operator 3 is map(bin) there and map(hex) here"),
        (fl.from_range(9).map(abs), "operator 3 is map(bin) there and nothing here"),
        (fl.from_range(8).map(abs).map(bin), "operator 1 is from_range(9) there and from_range(8)"),
    ]:
        with pytest.raises(InvalidArgument) as raised:
            changes(before, costs_of(other.node, []))
        assert message in str(raised.value)


def test_a_flow_that_is_planned_in_another_way_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="transport 'from 1 process' is in only one of"):
        changes(costs(1.0), costs(1.0, transport=1.0))


def test_a_file_keeps_the_costs(tmp_path: Path) -> None:
    saved = Costs(flows={"train.py:train": costs(1.0, 2.0, transport=0.5)})
    saved.save(tmp_path / "base.json")
    assert load(tmp_path / "base.json") == saved
    found = json.loads((tmp_path / "base.json").read_text())
    assert (found["format"], found["version"], found["reference"]) == ("flowdsl bench", 2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "has version 1 and reference 2"),
        ({"reference": 7}, "has version 2 and reference 7"),
        ({"format": "other"}, "is not a file of costs"),
        ({"flows": 3}, "is not a file of costs"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, change: object, message: str) -> None:
    path = tmp_path / "base.json"
    Costs(flows={}).save(path)
    assert isinstance(change, dict)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidArgument, match=message):
        load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no file .* write one first, by bench --save"):
        load(tmp_path / "none.json")


def test_changes_are_plain_data() -> None:
    (one,) = changes(costs(1.0), costs(1.5))
    assert isinstance(one, Change)
    assert attrs.asdict(one, recurse=False)["share"] == 1.0


def _in_memory(ratio: float, memory: float) -> FlowCosts:
    kinds = {"loops": 0.7, "copies in memory": memory}
    return costs_of(FLOW.node, [[Sample(MAP, SIZE, ratio, 0.001, kinds)]])


def test_what_contention_explains_is_not_counted() -> None:
    (one,) = changes(_in_memory(1.0, 0.4), _in_memory(1.3, 0.6))
    factor, kind = one.contention
    assert factor == pytest.approx(1.5)
    assert kind == "copies in memory"
    assert not one.is_slower(0.1)
    assert one.is_suspicious(0.1)
    (one,) = changes(_in_memory(1.0, 0.4), _in_memory(1.6, 0.6))
    assert one.is_slower(0.1)


def _beside_copies(part: float, copies: float) -> FlowCosts:
    """Costs whose part and copies in memory slow by these factors beside a program that copies."""
    calm, slowed = KINDS, {**KINDS, "copies in memory": 0.5 * copies}
    beside = [[Sample(MAP, SIZE, ratio * part, 0.001, slowed)] for ratio in (0.9, 1.0, 1.1)]
    return costs_of(FLOW.node, [[Sample(MAP, SIZE, 1.0, 0.001, calm)]], beside)


@pytest.mark.parametrize(
    ("part", "is_slower"), [(0.9, True), (1.1, True), (1.2, False), (1.5, False)]
)
def test_slow_copies_explain_only_parts_that_depend_on_memory(part: float, is_slower: bool) -> None:
    (one,) = changes(_beside_copies(part, 1.5), _in_memory(1.15, 0.75))
    assert one.is_slower(0.1) is is_slower
    assert one.contention[0] == pytest.approx(max(1, part))


@pytest.mark.parametrize(("copies", "excused"), [(0.9, 1.0), (1.05, 1.05), (1.2, 1.4)])
def test_contended_memory_excuses_a_part_by_its_own_slowdown(copies: float, excused: float) -> None:
    (one,) = changes(_beside_copies(1.4, 1.2), _in_memory(1.0, 0.5 * copies))
    assert one.contention[0] == pytest.approx(excused)


def test_contention_and_the_spread_of_samples_add_up() -> None:
    kinds = {"loops": 0.7, "random generators": 0.2}
    slower = {**kinds, "random generators": 0.23}
    before = costs_of(FLOW.node, [[Sample(MAP, SIZE, r, 0.001, kinds)] for r in (0.98, 1.0, 1.02)])
    for ratio, is_slower in ((1.15, False), (1.16, False), (1.17, True)):
        now = costs_of(FLOW.node, [[Sample(MAP, SIZE, ratio, 0.001, slower)]])
        (one,) = changes(before, now)
        assert one.is_slower(0.1) is is_slower


def test_a_part_that_takes_one_time_or_another_is_not_slower() -> None:
    """The median of two clusters is in either: it says little."""
    before = _in_processes(0.1, 0.1, 0.1, 0.16, 0.17)
    (one,) = changes(before, _in_processes(0.1, 0.1, 0.16, 0.16, 0.17))
    assert one.relative > 0.5
    assert not one.is_slower(0.1)
    (one,) = changes(before, _in_processes(0.18, 0.19, 0.19, 0.2, 0.2))
    assert one.is_slower(0.1)


def _in_processes(*of: float) -> FlowCosts:
    return costs_of(FLOW.node, [[_sample(MAP, ratio)] for ratio in of])


def test_a_faster_kind_of_work_hides_no_slowdown() -> None:
    (one,) = changes(_in_memory(1.0, 0.6), _in_memory(1.2, 0.4))
    assert one.contention[0] == 1
    assert one.is_slower(0.1)

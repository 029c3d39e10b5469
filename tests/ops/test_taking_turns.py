"""interleave and choose: weights, and where a pass stops."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, EndlessFlow, Flow, InvalidFlow, Reordered, Resampled, Unsized
from flowdsl.ops.combining import Stop
from tests.states import changed

AnyFlow = Flow[Any, Any]
NAMES = ("interleave", "choose")
STOPS: tuple[Stop, ...] = ("first", "last", "all")
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def numbered(sizes: list[int], stream: bool = False) -> list[AnyFlow]:
    """Flows of these sizes, whose elements are all different: 100 k + i."""
    rows = [range(100 * k, 100 * k + n) for k, n in enumerate(sizes)]
    return [fl.from_iterable(row) if stream else fl.from_items(row) for row in rows]


def merged(name: str, flows: list[AnyFlow], **options: Any) -> AnyFlow:
    flow: AnyFlow = getattr(flows[0], name)(*flows[1:], **options)
    return flow


# -- where a pass stops ----------------------------------------------------------------------------


@settings(deadline=None)
@given(sizes, st.sampled_from(NAMES), st.sampled_from(STOPS), st.booleans(), st.integers(0, 1))
def test_flows_of_unknown_length_take_the_same_turns(
    sizes: list[int], name: str, stop: Stop, weighted: bool, epoch: int
) -> None:
    weights = [1 + k % 3 for k in range(len(sizes))] if weighted else None
    flow = merged(name, numbered(sizes), weights=weights, stop=stop)
    stream = merged(name, numbered(sizes, stream=True), weights=weights, stop=stop)
    got = list(flow.epoch(epoch))
    assert list(stream.epoch(epoch)) == got
    assert flow.node.length in (None, len(got))
    assert (flow.node.length is None) == (name == "choose" and stop != "last")
    assert stream.effects - flow.effects <= {Unsized}


@given(sizes)
def test_with_stop_all_flows_repeat_until_each_was_seen_whole(sizes: list[int]) -> None:
    flows = numbered(sizes)
    got = merged("interleave", flows, stop="all").collect()
    endless = merged("interleave", [flow.repeat() for flow in flows])
    assert got == endless.take(len(got)).collect()


@settings(deadline=None)
@given(sizes, st.sampled_from(NAMES))
def test_the_last_element_with_stop_all_completes_a_flow(sizes: list[int], name: str) -> None:
    flows = numbered(sizes)
    got = list(merged(name, flows, stop="all"))
    assert set(got) == {x for flow in flows for x in flow}
    assert got.count(got[-1]) == 1


def test_a_flow_that_begins_again_is_in_its_next_epoch() -> None:
    short = fl.from_range(6).shuffle(seed=1)
    flow = short.interleave(fl.from_range(18).map(lambda i: i + 100), stop="all")
    got = [x for x in flow if x < 100]
    assert got == [*short.epoch(0), *short.epoch(1), *short.epoch(2)]
    assert len(set(zip(got[:6], got[6:12], strict=True))) == 6
    assert got[:6] != got[6:12]


def test_equal_flows_are_yielded_once_with_any_stop() -> None:
    for stop in STOPS:
        flow = merged("interleave", numbered([3, 3]), stop=stop)
        assert flow.collect() == [0, 100, 1, 101, 2, 102]
        assert len(flow) == 6


def test_effects_of_stopping() -> None:
    flows = numbered([2, 3])
    assert merged("interleave", flows, stop="first").effects == {Reordered, Resampled}
    assert merged("interleave", flows, stop="all").effects == {Reordered, Resampled}
    assert merged("choose", flows, stop="all").effects == {Reordered, Resampled, Unsized}
    with_endless = [flows[0], flows[1].repeat()]
    assert Endless not in merged("interleave", with_endless, stop="first").effects
    assert len(merged("interleave", with_endless, stop="first")) == 4
    for name in NAMES:
        assert Endless in merged(name, with_endless, stop="all").effects
        assert merged(name, with_endless, stop="all").node.indexable


def test_interleave_reads_late_with_any_stop() -> None:
    a, b = fl.from_range(10**9), fl.from_range(3 * 10**9).map(lambda i: -i)
    for stop, length in (("first", 4 * 10**9), ("all", 4 * 10**9 - 1)):
        flow = merged("interleave", [a, b], weights=[1, 3], stop=stop)
        assert flow.node.indexable
        assert abs(len(flow) - length) <= 2
    flow = merged("interleave", [a, b], stop="all")
    run = flow.resume(changed(iter(flow).state_dict(), position=5 * 10**9))
    assert list(islice(run, 3)) == [5 * 10**8, -25 * 10**8, 5 * 10**8 + 1]


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_flow_cannot_begin_again(name: str) -> None:
    flows = numbered([2, 0])
    with pytest.raises(InvalidFlow) as caught:
        merged(name, flows, stop="all")
    assert str(caught.value) == (
        f"{name}: from_items(0 items) has no elements, so with stop='all' it would begin again "
        f"without end; leave it out"
    )
    none = fl.from_range(3).filter(lambda i: i > 5)
    with pytest.raises(EndlessFlow) as found:
        list(merged(name, [flows[0], none], stop="all"))
    assert str(found.value).startswith(f"{name}: pass 0 of filter(<lambda>) had no elements")


def test_an_element_that_fails_fails_in_its_turn() -> None:
    def broken() -> Iterator[int]:
        yield 100
        raise OSError("unplugged")

    for stop in ("last", "all"):
        flow = merged("interleave", [fl.from_range(3), fl.from_iterable(broken)], stop=stop)
        got = list[int]()
        with pytest.raises(fl.ElementError, match="unplugged"):
            got.extend(flow)
        assert got == [0, 100, 1]


# -- blocks and cycles -----------------------------------------------------------------------------

many_sizes = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@given(many_sizes, st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_cycles_and_blocks_are_the_turns_of_interleave_map(
    sizes: list[int], cycle: int, block: int, stream: bool
) -> None:
    flow = fl.interleave(numbered(sizes, stream), cycle=cycle, block=block)
    rows = fl.from_items([list(one) for one in numbered(sizes)])
    assert flow.collect() == rows.interleave_map(list, cycle=cycle, block=block).collect()
    assert flow.effects == {Reordered} | ({Unsized} if stream else set())
    assert flow.node.indexable != stream


def test_only_a_cycle_of_streams_is_open() -> None:
    opened, most = set[int](), list[int]()

    def rows(k: int) -> Iterator[int]:
        opened.add(k)
        most.append(len(opened))
        yield from range(3)
        opened.remove(k)

    flows = [fl.from_iterable(partial(rows, k)) for k in range(20)]
    assert len(fl.interleave(flows, cycle=4, block=2).collect()) == 60
    assert max(most) == 4


def test_a_cycle_reads_late() -> None:
    flow = fl.interleave([fl.from_range(10**9) for _ in range(100)], cycle=10, block=5)
    assert len(flow) == 10**11
    run = flow.resume(changed(iter(flow).state_dict(), position=10**10 + 3))
    assert list(islice(run, 4)) == [3, 4, 0, 1]


def test_cycles_and_blocks_are_refused_beside_weights() -> None:
    flows = numbered([2, 3])
    options: list[dict[str, Any]] = [{"cycle": 2}, {"block": 2}]
    for option in options:
        with pytest.raises(InvalidFlow, match=r"^interleave: with weights, elements are taken one"):
            fl.interleave(flows, weights=[1, 2], **option)
    with pytest.raises(InvalidFlow, match="leave out stop='all'"):
        fl.interleave(flows, cycle=2, stop="all")
    with pytest.raises(InvalidFlow, match="interleave: block must be an int >= 1, got 0"):
        fl.interleave(flows, block=0)


# -- weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_interleave_keeps_proportions_from_the_start(stream: bool) -> None:
    weights = (0.5, 0.3, 0.2)
    flow = merged("interleave", numbered([99, 99, 99], stream), weights=weights, stop="first")
    got = [x // 100 for x in flow]
    assert len(got) in (197, 198, 199)
    for n in range(1, len(got) + 1):
        for k, weight in enumerate(weights):
            assert abs(got[:n].count(k) - n * weight) < 1


def test_weights_may_be_numbers_of_any_kind() -> None:
    expected = merged("interleave", numbered([5, 5]), weights=[2, 1]).collect()
    for weights in ([2.0, 1.0], (2, True), np.array([2, 1]), np.array([0.2, 0.1], np.float32)):
        assert merged("interleave", numbered([5, 5]), weights=weights).collect() == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stop", STOPS)
def test_a_flow_of_weight_zero_is_left_out(name: str, stop: Stop) -> None:
    a, b, c = numbered([3, 4, 5])
    flow = merged(name, [a, b.repeat(), c], weights=[1, 0, 2], stop=stop)
    assert flow.collect() == merged(name, [a, c], weights=[1, 2], stop=stop).collect()
    assert Endless not in flow.effects
    assert merged(name, [a, b], weights=[0, 1], stop=stop).collect() == b.collect()


# -- lists and dicts of flows ----------------------------------------------------------------------

FUNCTIONS = ("concat", "interleave", "choose", "mix")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_lists_equal_the_methods(name: str) -> None:
    flows = numbered([3, 2, 4])
    expected = merged(name, flows).collect()
    function = getattr(fl, name)
    assert function(flows).collect() == expected
    assert function(tuple(flows)).collect() == expected
    assert function(flow for flow in flows).collect() == expected
    assert function(dict(zip("abc", flows, strict=True))).collect() == expected
    assert function(flows[:1]).collect() == [0, 1, 2]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_are_beside_the_elements_of_a_dict_of_flows(name: str) -> None:
    flows = dict(zip("abc", numbered([3, 2, 4]), strict=True))
    flow = getattr(fl, name)(flows, with_names=True)
    plain = getattr(fl, name)(flows)
    assert flow.collect() == [("abc"[x // 100], x) for x in plain]  # names change no draw
    assert str(flow.spec) == "(str, int)"
    assert flow.effects == plain.effects
    assert flow.node.indexable


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_a_dict_of_flows_are_found_by_name(name: str) -> None:
    a, b = numbered([5, 5])
    function = getattr(fl, name)
    expected = merged(name, [a, b], weights=[2, 1]).collect()
    assert function({"a": a, "b": b}, weights={"b": 1, "a": 2}).collect() == expected
    assert function([a, b], weights=[2, 1]).collect() == expected
    for flows, weights, message in (
        ({"a": a, "b": b}, {"a": 1}, "weights must have the names of the flows, 'a', 'b'; got 'a'"),
        ({"a": a, "b": b}, [1, 2], "weights must be a dict with the names of the flows, got"),
        ([a, b], {"a": 1, "b": 2}, "weights must be a list, as the flows are, got"),
    ):
        with pytest.raises(InvalidFlow, match=f"^{name}: {message}"):
            function(flows, weights=weights)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("flows", "message"),
    [
        ([], "expected one flow at least, got []"),
        ({}, "expected one flow at least, got {}"),
        (fl.from_range(2), "expected a list or dict of flows, got Flow; write fl."),
        (7, "expected a list or dict of flows, got int; write fl."),
        ([1, 2], "expected flows to combine with, got int; from_items(...) makes one"),
        ({1: fl.from_range(2)}, "names of flows must be str, got [1]"),
    ],
)
def test_functions_of_lists_refuse_what_is_none(name: str, flows: Any, message: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        getattr(fl, name)(flows)
    assert str(caught.value).startswith(f"{name}: {message}")


def test_names_need_a_dict_of_flows() -> None:
    flows: Any = numbered([2])
    with pytest.raises(InvalidFlow, match=r"^choose: with_names=True needs the names of"):
        fl.choose(flows, with_names=True)


# -- many flows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_first_element_of_many_flows_comes_early(name: str) -> None:
    flows: list[AnyFlow] = [fl.from_range(1000 + k) for k in range(800)]
    start = time.process_time()
    assert next(iter(merged(name, flows))) == 0
    assert time.process_time() - start < 2  # it took minutes when the ends of all were computed


@pytest.mark.parametrize("name", NAMES)
def test_many_flows_are_read_to_their_ends(name: str) -> None:
    flows: list[AnyFlow] = [fl.from_range(k % 3) for k in range(60)]
    assert sorted(merged(name, flows)) == [0] * 40 + [1] * 20

"""zip: pairs by position, compared with lists; flows that cannot be paired are refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import (
    ElementError,
    Endless,
    Flow,
    FlowError,
    InvalidFlow,
    Resampled,
    Unsized,
)

AnyFlow = Flow[Any, Any]


class Left(NamedTuple):
    a: int
    b: str


@given(st.integers(0, 9))
def test_zip_pairs_elements_by_position(n: int) -> None:
    flow = fl.from_range(n).zip(fl.from_range(n).map(str))
    assert flow.collect() == [(i, str(i)) for i in range(n)]
    assert len(flow) == n
    assert flow.effects == frozenset()


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        ((1, 2), (3, 4), (1, 2, 3, 4)),
        ((1, 2), 3, (1, 2, 3)),
        (1, (2, 3), (1, 2, 3)),
        (Left(1, "x"), Left(2, "y"), (1, "x", 2, "y")),
        ({"a": 1}, {"b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3}),
        ({"a": 1}, 2, ({"a": 1}, 2)),
        ([1], [2], ([1], [2])),
    ],
)
def test_zip_joins_components(left: object, right: object, joined: object) -> None:
    one: AnyFlow = fl.from_items([left])
    flow: AnyFlow = one.zip(fl.from_items([right]))
    (got,) = flow.collect()
    assert got == joined
    assert type(got) is type(joined)
    assert flow.node.spec(probe=True) == fl.from_items([joined]).spec
    assert flow.map(lambda x: x).spec == fl.from_items([joined]).spec


def test_the_spec_of_zip_is_known_without_an_element() -> None:
    flow: AnyFlow = fl.from_range(0).zip(fl.fake([(2, 3), ()], 0))
    assert str(flow.node.spec(probe=False)) == "(int, float32[2, 3], float32[])"
    assert flow.collect() == []


@given(st.integers(0, 5), st.integers(1, 5))
def test_zip_joins_any_number_of_flows(n: int, several: int) -> None:
    flows: list[AnyFlow] = [fl.from_items(range(10 * k, 10 * k + n)) for k in range(several)]
    expected = [tuple(10 * k + i for k in range(several)) for i in range(n)]
    for flow in (flows[0].zip(*flows[1:]), fl.zip(*flows)):
        assert flow.collect() == expected
        assert len(flow) == n
        assert flow.node.indexable
    names = "abcde"[:several]
    named: AnyFlow = fl.zip(dict(zip(names, flows, strict=True)))
    assert named.collect() == [dict(zip(names, row, strict=True)) for row in expected]


def test_zip_merges_dicts_only_if_all_are_dicts() -> None:
    a, b = fl.from_items([{"a": 1}]), fl.from_items([{"b": 2}])
    c = fl.from_items([{"c": 3}])
    number = fl.from_range(1)
    assert a.zip(b, c).collect() == [{"a": 1, "b": 2, "c": 3}]
    assert a.zip(b, number).collect() == [({"a": 1}, {"b": 2}, 0)]
    with pytest.raises(InvalidFlow, match=r"two elements have the keys \['a', 'b'\]"):
        fl.zip(a, b, c, b, a)


def test_zip_of_a_dict_of_flows_keeps_elements_whole() -> None:
    flow = fl.zip({"pair": fl.from_items([(1, "x")]), "row": fl.from_items([{"a": 2}])})
    assert flow.collect() == [{"pair": (1, "x"), "row": {"a": 2}}]
    assert str(flow.spec) == "{pair: (int, str), row: {a: int}}"


@pytest.mark.parametrize("flows", [(), ({},)])
def test_zip_of_no_flow_is_refused(flows: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidFlow, match="zip: expected one flow at least"):
        fl.zip(*flows)


def test_zip_of_several_flows_names_the_two_that_differ() -> None:
    with pytest.raises(InvalidFlow, match=r"from_range\(3\) has 3 elements and from_range\(4\) 4;"):
        fl.zip(fl.from_range(3), fl.from_range(3).map(str), fl.from_range(4))


def test_zip_can_be_chained() -> None:
    three = fl.from_range(2).zip(fl.from_items("ab")).zip(fl.from_items([0.5, 1.5]))
    assert three.collect() == [(0, "a", 0.5), (1, "b", 1.5)]


def test_zip_refuses_different_lengths() -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).zip(fl.from_range(4))
    assert str(caught.value) == (
        "zip: from_range(3) has 3 elements and from_range(4) 4; put .take(n) after the longer "
        "one, or .repeat() after the shorter"
    )


@given(st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_different_lengths_are_an_error_at_the_end(n: int, m: int, swap: bool) -> None:
    one, other = fl.from_iterable(range(n)), fl.from_range(m)
    flow: AnyFlow = other.zip(one) if swap else one.zip(other)
    assert flow.effects == {Unsized}
    assert flow.node.length is None
    run, got = iter(flow), list[Any]()
    if n == m:
        assert list(run) == [(i, i) for i in range(n)]
        return
    with pytest.raises(
        FlowError, match=f"ended after {min(n, m)} elements.* a filter .*zip before"
    ):
        got.extend(run)
    assert got == [(i, i) for i in range(min(n, m))]


@given(st.integers(1, 9), st.integers(1, 4), st.booleans(), st.booleans())
def test_an_endless_flow_ends_with_the_other(n: int, m: int, swap: bool, stream: bool) -> None:
    finite: AnyFlow = fl.from_iterable(range(n)) if stream else fl.from_range(n)
    endless: AnyFlow = fl.from_range(m).repeat()
    flow: AnyFlow = endless.zip(finite) if swap else finite.zip(endless)
    expected = [(i, i % m) for i in range(n)]
    assert flow.collect() == [pair[::-1] for pair in expected] if swap else expected
    assert flow.effects == {Resampled} | ({Unsized} if stream else set())
    assert flow.node.length == (None if stream else n)


def test_zip_of_two_endless_flows_is_endless() -> None:
    flow = fl.from_range(2).repeat().zip(fl.from_range(3).repeat())
    assert flow.effects == {Resampled, Endless}
    assert flow.take(4).collect() == [(0, 0), (1, 1), (0, 2), (1, 0)]


@pytest.mark.parametrize("swap", [False, True])
def test_zip_refuses_a_reordered_flow(swap: bool) -> None:
    one: AnyFlow = fl.from_range(3)
    other: AnyFlow = fl.from_range(3).shuffle().map(str)
    with pytest.raises(InvalidFlow) as caught:
        other.zip(one) if swap else one.zip(other)
    assert str(caught.value) == (
        "zip: map(str) is reordered, so its elements would be paired by chance; zip first, "
        "then shuffle"
    )


def test_two_dicts_with_a_common_key_are_an_error() -> None:
    one: AnyFlow = fl.from_items([{"a": 1}, {"a": 2}])
    run = iter(one.zip(fl.from_items([{"b": 1}, {"a": 3, "b": 2}])))  # known of the first only
    first: object = next(run)
    assert first == {"a": 1, "b": 1}
    with pytest.raises(ElementError) as caught:
        next(run)
    assert caught.value.position == 1
    assert str(caught.value.__cause__) == (
        "zip: two elements have the keys ['a']; rename one with .map"
    )


def test_errors_name_the_rows_of_both_flows() -> None:
    flow = fl.from_range(3).zip(fl.from_items("abc")).map(lambda pair: 1 // (pair[0] - 1))
    with pytest.raises(ElementError) as caught:
        flow.collect()
    assert caught.value.origin == "row 1 of from_range(3) and row 1 of from_items(3 items)"
    same = fl.from_range(3)
    assert same.zip(same).node.origin(0, 1) == "row 1 of from_range(3)"


def test_two_dicts_known_to_have_a_common_key_are_refused() -> None:
    with pytest.raises(InvalidFlow, match=r"two elements have the keys \['a'\]"):
        fl.from_items([{"a": 1}]).zip(fl.from_items([{"a": 2, "b": 3}]))

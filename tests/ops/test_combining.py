"""concat, interleave, choose, mix, compared with itertools, counts and probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import (
    ElementError,
    Endless,
    Exact,
    Flow,
    InvalidFlow,
    Reordered,
    Resampled,
    Unsized,
)
from tests.states import changed

AnyFlow = Flow[Any, Any]
sizes = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def numbered(sizes: list[int], stream: bool = False) -> list[AnyFlow]:
    """Flows of these sizes, whose elements are all different: 100 k + i."""
    rows = [range(100 * k, 100 * k + n) for k, n in enumerate(sizes)]
    return [fl.from_iterable(row) if stream else fl.from_items(row) for row in rows]


def lists(flows: list[AnyFlow]) -> list[list[Any]]:
    return [flow.collect() for flow in flows]


def in_order_within_each(elements: list[int]) -> bool:
    return all(
        [x for x in elements if x // 100 == k] == sorted(x for x in elements if x // 100 == k)
        for k in range(4)
    )


class Left(NamedTuple):
    a: int
    b: str


class TestConcat:
    @given(sizes, st.booleans())
    def test_concat_chains_all_elements(self, sizes: list[int], stream: bool) -> None:
        flows = numbered(sizes, stream)
        flow = flows[0].concat(*flows[1:])
        assert flow.collect() == list(chain(*lists(flows)))
        assert flow.effects == ({Unsized} if stream else set())
        assert flow.node.length == (None if stream else sum(sizes))

    def test_every_part_runs_in_the_same_epoch(self) -> None:
        one, other = fl.from_range(9).shuffle(), fl.from_range(9).map(lambda i: -i).shuffle(seed=1)
        both = one.concat(other)
        assert list(both.epoch(2)) == [*one.epoch(2), *other.epoch(2)]
        assert both.effects == {Reordered}

    def test_concat_may_end_with_an_endless_flow(self) -> None:
        flow = fl.from_range(2).concat(fl.from_range(3).repeat())
        assert flow.take(6).collect() == [0, 1, 0, 1, 2, 0]
        assert Endless in flow.effects
        assert flow.node.indexable

    def test_concat_refuses_flows_after_an_endless_flow(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(2).repeat().concat(fl.from_range(3))
        assert str(caught.value) == (
            "concat: repeat() never ends, so the flow after it is never reached; put .take(n) "
            "after it, or interleave them"
        )

    def test_errors_of_concat_name_the_row_of_the_part(self) -> None:
        flow = fl.from_items([1]).concat(fl.from_range(4)).map(lambda i: 1 // (i - 2))
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert caught.value.origin == "row 2 of from_range(4)"


class TestInterleave:
    @given(sizes, st.booleans())
    def test_interleave_alternates_between_flows(self, sizes: list[int], stream: bool) -> None:
        flows = numbered(sizes, stream)
        flow = flows[0].interleave(*flows[1:])
        rounds = zip_longest(*lists(flows))
        assert flow.collect() == [x for turn in rounds for x in turn if x is not None]
        assert flow.effects == {Reordered} | ({Unsized} if stream else set())

    @given(st.lists(st.integers(0, 9) | st.none(), min_size=1, max_size=4), st.integers(0, 40))
    def test_interleave_resolves_any_position(self, lengths: list[int | None], start: int) -> None:
        flows = numbered([9 if n is None else n for n in lengths])
        parts: list[AnyFlow] = [
            flow.map(abs).repeat() if n is None else flow
            for flow, n in zip(flows, lengths, strict=True)
        ]
        flow = parts[0].interleave(*parts[1:])
        whole = flow.take(60).collect()
        assert flow.skip(start).take(5).collect() == whole[start : start + 5]

    def test_interleave_continues_without_ended_flows(self) -> None:
        flow = fl.from_items("ab").interleave(fl.from_items("xyz").repeat(), fl.from_items("."))
        assert "".join(flow.take(9).collect()) == "ax.byzxyz"


class TestChoose:
    @settings(deadline=None)
    @given(sizes, st.integers(0, 3), st.integers(0, 2), st.booleans())
    def test_choose_yields_every_row_in_the_order_of_each_flow(
        self, sizes: list[int], seed: int, epoch: int, stream: bool
    ) -> None:
        flows = numbered(sizes, stream)
        flow = flows[0].choose(*flows[1:], weights=range(1, len(sizes) + 1), seed=seed)
        got = list(flow.epoch(epoch))
        assert sorted(got) == sorted(chain(*lists(flows)))
        assert in_order_within_each(got)
        assert flow.effects == {Reordered} | ({Unsized} if stream else set())
        assert flow.node.length == (None if stream else sum(sizes))
        in_memory = numbered(sizes)
        twin = in_memory[0].choose(*in_memory[1:], weights=range(1, len(sizes) + 1), seed=seed)
        assert list(twin.epoch(epoch)) == got  # a stream is chosen from alike

    @settings(deadline=None)
    @given(sizes, st.integers(0, 3), st.booleans())
    def test_stop_first_ends_with_the_first_ended_flow(
        self, sizes: list[int], seed: int, stream: bool
    ) -> None:
        flows = numbered(sizes, stream)
        flow = flows[0].choose(*flows[1:], seed=seed, stop="first")
        got = flow.collect()
        rest = flows[0].choose(*flows[1:], seed=seed).collect()
        assert got == rest[: len(got)]
        taken = [sum(x // 100 == k for x in got) for k in range(len(sizes))]
        assert any(n == size for n, size in zip(taken, sizes, strict=True))
        assert {Reordered, Resampled, Unsized} <= flow.effects

    def test_stop_first_is_endless_only_if_all_flows_are(self) -> None:
        finite, endless = fl.from_range(1), fl.from_range(2).repeat()
        assert Endless not in finite.choose(endless, stop="first").effects
        ends: AnyFlow = endless.choose(fl.from_range(0), stop="first")
        assert set(ends.collect()) <= {0, 1}
        assert Endless in endless.choose(endless, stop="first").effects

    def test_flows_are_chosen_in_proportion_to_their_weights(self) -> None:
        parts = [fl.from_items([k]).repeat() for k in range(3)]
        flow = parts[0].choose(parts[1], parts[2], weights=[5, 3, 2], stop="first")
        counts = np.bincount(flow.take(20_000).collect())
        assert np.all(np.abs(counts / 20_000 - (0.5, 0.3, 0.2)) < 0.02)
        evenly = np.bincount(parts[0].choose(*parts[1:]).take(9_000).collect())
        assert np.all(np.abs(evenly / 9_000 - 1 / 3) < 0.025)

    def test_choose_reads_late(self) -> None:
        many = fl.from_range(10**9).map(lambda i: -i)
        flow = fl.from_range(10**9).choose(many, weights=[1, 3])
        assert flow.node.indexable
        assert len(flow) == 2 * 10**9
        run = flow.resume(changed(iter(flow).state_dict(), position=19 * 10**8))
        # the other has ended by then, so what is left are the last tenth of this one
        assert [next(run) for _ in range(3)] == [9 * 10**8, 9 * 10**8 + 1, 9 * 10**8 + 2]

    def test_each_epoch_has_its_own_choices(self) -> None:
        flow = fl.from_range(20).choose(fl.from_range(20))
        assert len({tuple(flow.epoch(k)) for k in range(4)}) == 4
        twice = flow.repeat(2).collect()
        assert twice == [*flow.epoch(0), *flow.epoch(1)]

    def test_two_choose_operators_draw_independently(self) -> None:
        one = fl.from_range(40).choose(fl.from_range(40))
        two = one.choose(fl.from_range(80))
        pattern = [x for x in two.collect() if x < 40]
        assert pattern != one.collect()

    @pytest.mark.parametrize(
        ("weights", "given_"),
        [
            ([1], "[1]"),
            ([0, 0], "[0, 0]"),
            ([1, -1], "[1, -1]"),
            ([1, float("nan")], "[1, nan]"),
            ([1, float("inf")], "[1, inf]"),
            ([1, "a"], "[1, 'a']"),
            ([1, 1e-9], "[1, 1e-09]"),
            ([1, 10**400], f"[1, {10**400}]"),
            ([1, 1j], "[1, 1j]"),
            ([], "[]"),
        ],
    )
    @pytest.mark.parametrize("name", ["choose", "interleave"])
    def test_invalid_weights_are_refused(self, weights: Any, given_: str, name: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            getattr(fl.from_range(3), name)(fl.from_range(3), weights=weights)
        assert str(caught.value) == (
            f"{name}: weights must be 2 numbers, one for each flow, not all zero, and each zero or "
            f"at least a millionth of their sum, got {given_}"
        )

    @pytest.mark.parametrize("given_", [2, 0.5, np.array(2), object])
    def test_choose_refuses_weights_that_are_not_a_list(self, given_: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).choose(fl.from_range(3), weights=given_)
        assert str(caught.value) == (
            f"choose: weights must be a list of numbers, one for each flow, got {given_!r}"
        )

    def test_weights_need_not_sum_to_one(self) -> None:
        ten = [fl.from_range(2) for _ in range(10)]
        assert len(ten[0].choose(*ten[1:], weights=[0.1] * 10)) == 20
        weights = np.array([0.5, 0.5], np.float32)
        assert len(ten[0].choose(ten[1], weights=weights.tolist())) == 4

    def test_choose_refuses_an_unknown_stop(self) -> None:
        stop: Any = "never"
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).choose(fl.from_range(3), stop=stop)
        assert str(caught.value) == "choose: stop must be 'first', 'last' or 'all', got 'never'"
        seed: Any = -1
        with pytest.raises(InvalidFlow, match="choose: seed must be an int >= 0, got -1"):
            fl.from_range(3).choose(fl.from_range(3), seed=seed)


class TestMix:
    @settings(deadline=None)
    @given(sizes, st.integers(0, 3), st.integers(0, 2))
    def test_mix_yields_every_row_in_the_order_of_each_flow(
        self, sizes: list[int], seed: int, epoch: int
    ) -> None:
        flows = numbered(sizes)
        flow = flows[0].mix(*flows[1:], seed=seed)
        got = list(flow.epoch(epoch))
        assert sorted(got) == sorted(chain(*lists(flows)))
        assert in_order_within_each(got)
        assert len(flow) == sum(sizes)
        assert flow.effects == {Reordered}

    def test_all_mixed_orders_are_equally_likely(self) -> None:
        flow = fl.from_items("aa").mix(fl.from_items("bb"))
        seen = ["".join(flow.epoch(k)) for k in range(1200)]
        counts = [seen.count(order) for order in ("aabb", "abab", "abba", "baab", "baba", "bbaa")]
        assert sum(counts) == 1200
        assert all(abs(count - 200) < 60 for count in counts)

    def test_mix_with_a_stream_of_known_length(self) -> None:
        flow = fl.from_range(4).mix(
            fl.from_range(4).filter(bool).shuffle(1).repeat(1).fixed_size(3)
        )
        assert sorted(flow.collect()) == [0, 1, 1, 2, 2, 3, 3]
        assert flow.prefetch(procs=2).collect() == flow.collect()

    def test_mix_needs_known_lengths(self) -> None:
        stream: AnyFlow = fl.from_iterable([1])
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).mix(stream)
        assert str(caught.value) == (
            "mix: from_iterable(list) has no known length, without which flows cannot be mixed "
            "evenly; choose(...) does not need it"
        )
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(10**9).mix(fl.from_range(1))
        assert str(caught.value) == (
            "mix: the flows may have at most 999,999,999 rows together, got 1,000,000,001"
        )


class Right(NamedTuple):
    a: int
    b: str


def _flow_of(*elements: Any) -> AnyFlow:
    return fl.from_items(list(elements))


MERGING = ["concat", "interleave", "choose", "mix"]


class TestDifferentElements:
    @pytest.mark.parametrize("name", MERGING)
    @pytest.mark.parametrize(
        ("one", "other", "difference"),
        [
            (1, 1.5, "element is int in {} and float in {}"),
            (True, 2, "element is bool in {} and int in {}"),
            ("a", b"a", "element is str in {} and bytes in {}"),
            (np.float32(1), np.float64(1), "element is float32[] in {} and float64[] in {}"),
            ((np.zeros(3, np.uint8), 1), (np.zeros(4), 1), "element.0 is uint8[?] in {} and float"),
            ((1, 2), (1, 2, 3), "element is (int, int) in {} and (int, int, int) in {}"),
            ((1, 2), 1, "element is (int, int) in {} and int in {}"),
            ({"a": 1}, {"b": 1}, "element is {{a: int}} in {} and {{b: int}} in {}"),
            ({"a": (1, 2)}, {"a": (1, "x")}, "element.a.1 is int in {} and str in {}"),
            (Left(1, "x"), Right(1, "x"), "element is Left(a: int, b: str) in {} and Right(a: "),
            (Left(1, "x"), (1, 2), "element.b is str in {} and int in {}"),
        ],
    )
    def test_flows_with_different_elements_are_refused(
        self, name: str, one: Any, other: Any, difference: str
    ) -> None:
        first, second = _flow_of(one), _flow_of(other, other).prefetch()
        for flow, theirs in ((first, second), (second, first)):
            with pytest.raises(InvalidFlow):
                getattr(flow, name)(theirs)
        with pytest.raises(InvalidFlow) as caught:
            getattr(first, name)(second)
        expected = difference.format("from_items(1 items)", "from_items(2 items)")
        assert str(caught.value).startswith(f"{name}: {expected}")
        assert str(caught.value).endswith("; make them alike with .map")

    @pytest.mark.parametrize("name", MERGING)
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (np.zeros(3), np.zeros((4, 2))),
            (1.5, np.float64(2)),
            (np.float32(1), np.zeros(3, np.float32)),
            (Left(1, "x"), (2, "y")),
            ({"a": 1, "b": 2.5}, {"b": 1.5, "a": 2}),
            (None, 1),
            ({"a": None}, {"a": 2}),
            (ValueError(), Exception()),
        ],
    )
    def test_elements_may_differ_in_size_or_if_one_includes_the_other(
        self, name: str, one: Any, other: Any
    ) -> None:
        assert len(getattr(_flow_of(one), name)(_flow_of(other, other)).collect()) == 3

    @pytest.mark.parametrize("name", MERGING)
    def test_any_two_differing_flows_are_named(self, name: str) -> None:
        unknown = [fl.from_range(n).map(float) for n in range(3)]
        with pytest.raises(InvalidFlow) as caught:
            getattr(_flow_of(1), name)(*unknown, _flow_of(np.int8(1)))
        assert str(caught.value) == (
            f"{name}: element is int in from_items(1 items) and int8[] in from_items(1 items); "
            "make them alike with .map"
        )

    @pytest.mark.parametrize("name", MERGING)
    def test_differences_found_by_probing_are_noted(self, name: str) -> None:
        ints: AnyFlow = fl.from_range(3).map(lambda i: i)
        floats: AnyFlow = fl.from_range(3).map(lambda i: i / 2)
        flow = getattr(ints, name)(floats)
        (note,) = [line for line in flow.explain().splitlines() if line.startswith("note: ")]
        assert note == (
            f"note: {flow.node.title}: element is int in map(<lambda>) and float in map(<lambda>); "
            "make them alike with .map"
        )
        broken: AnyFlow = fl.from_range(3).map(lambda i: 1 // i)
        assert "note" not in getattr(ints, name)(broken).explain()


class TestAllOperators:
    @pytest.mark.parametrize("name", ["zip", "concat", "interleave", "choose", "mix"])
    def test_other_arguments_than_flows_are_refused(self, name: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            getattr(fl.from_range(2), name)([1, 2])
        assert str(caught.value) == (
            f"{name}: expected flows to combine with, got list; from_items(...) makes one"
        )

    def test_a_list_of_flows_is_refused_with_advice(self) -> None:
        flows: Any = [fl.from_range(2), fl.from_range(3)]
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(2).mix(flows)
        assert str(caught.value) == (
            "mix: expected flows to combine with, got list; unpack them, mix(*flows)"
        )

    def test_a_state_distinguishes_close_weights(self) -> None:
        one, other = fl.from_range(9), fl.from_range(9)
        state = iter(one.choose(other, weights=[0.3333331, 0.6666669])).state_dict()
        with pytest.raises(fl.StateMismatch):
            one.choose(other, weights=[0.3333334, 0.6666666]).resume(state)

    def test_a_state_distinguishes_combined_flows(self) -> None:
        a, b, c = fl.from_range(3), fl.from_range(4), fl.from_range(5)
        one, other = a.concat(b).mix(c), a.mix(b.concat(), c)  # the same operators, in this order
        with pytest.raises(fl.StateMismatch):
            other.resume(iter(one).state_dict())

    @pytest.mark.parametrize("name", ["choose", "concat", "interleave", "mix"])
    def test_too_many_elements_are_refused(self, name: str) -> None:
        many = fl.from_range(2**61)
        with pytest.raises(InvalidFlow):
            getattr(many, name)(many)
        with pytest.raises(InvalidFlow, match=r"^repeat: a pass .* have 13835058055282163709"):
            fl.from_range(3).repeat(2**62 - 1)

    @pytest.mark.parametrize("name", ["concat", "interleave", "choose", "mix"])
    def test_combining_one_flow_yields_that_flow(self, name: str) -> None:
        assert getattr(fl.from_range(5), name)().collect() == list(range(5))

    @pytest.mark.parametrize("name", ["concat", "interleave", "choose", "mix"])
    def test_the_spec_is_the_common_part_of_all_flows(self, name: str) -> None:
        one = fl.from_items([np.zeros((2, 3), np.float32)])
        other = fl.from_items([np.zeros((4, 3), np.float32)])
        assert str(getattr(one, name)(other).spec) == "float32[?, 3]"

    def test_a_flow_can_be_combined_with_itself(self) -> None:
        flow = fl.from_items(range(4)).map(lambda i: i * i)
        both = flow.map(str).concat(flow.map(str)).prefetch(procs=2)
        assert both.collect() == ["0", "1", "4", "9"] * 2
        pairs = flow.map(lambda i: i + 1).zip(flow.map(lambda i: -i)).prefetch(procs=2)
        assert pairs.collect() == [(i * i + 1, -i * i) for i in range(4)]

    def test_a_failing_stream_fails_at_its_position(self) -> None:
        def broken() -> Iterator[int]:
            yield 100
            raise OSError("unplugged")

        flow: Flow[int, Exact | Unsized | Reordered] = fl.from_range(3).interleave(
            fl.from_iterable(broken)
        )
        for procs in (0, 2):
            run, got = iter(flow.map(lambda i: i).prefetch(procs=procs)), list[int]()
            with pytest.raises(ElementError) as caught:
                got.extend(run)
            assert got == [0, 100, 1]
            assert str(caught.value.__cause__) == "unplugged"

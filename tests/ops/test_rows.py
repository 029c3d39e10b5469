"""Slices and lists of positions, compared with slices of lists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Endless, Flow, InvalidFlow, Reordered, Resampled, Unsized
from tests.ops.passes import passes, reference, resolved

lengths = st.integers(0, 12)
bounds = st.none() | st.integers(-15, 15)
steps = st.none() | st.integers(-5, 5).filter(bool)
slices = st.builds(slice, bounds, bounds, steps)


class TestSlices:
    @given(lengths, slices)
    def test_a_slice_yields_what_the_slice_of_a_list_has(self, length: int, rows: slice) -> None:
        flow: Flow[int, Any] = fl.from_range(length)[rows]
        assert flow.collect() == list(range(length))[rows]
        assert len(flow) == len(range(length)[rows])
        assert flow.effects <= {Reordered}

    @given(lengths, slices)
    def test_a_slice_above_a_shuffle_reads_late(self, length: int, rows: slice) -> None:
        flow: Flow[int, Any] = fl.from_range(length).shuffle()[rows]
        assert flow.node.indexable
        assert passes(flow, 3) == reference(flow, 3)

    @given(lengths, slices)
    def test_a_slice_of_elements_that_are_read_in_order(self, length: int, rows: slice) -> None:
        shuffled = fl.from_range(length).shuffle(4)
        flow: Flow[int, Any] = shuffled[rows]
        assert passes(flow, 2) == [x for k in range(2) for x in list(shuffled.epoch(k))[rows]]

    @given(lengths, st.builds(slice, *[st.none() | st.integers(0, 15)] * 2, st.integers(1, 5)))
    def test_a_slice_of_a_stream(self, length: int, rows: slice) -> None:
        flow: Flow[int, Any] = fl.from_iterable(range(length))[rows]
        assert flow.collect() == list(range(length))[rows]
        assert flow.effects == {Unsized}

    def test_a_slice_reads_no_other_element(self) -> None:
        flow = fl.from_range(10**12).map(lambda i: 1 // (i % 10**6))
        assert flow[-1 : 1 : -(10**11)].collect() == [0] * 10

    def test_a_slice_of_an_endless_flow(self) -> None:
        flow = fl.from_range(3).repeat()
        assert flow[2:8].collect() == [2, 0, 1, 2, 0, 1]
        assert flow[2:8].effects == {Resampled}
        assert flow[::2].effects == {Resampled, Endless}
        assert fl.from_iterable(lambda: count())[5:10:3].collect() == [5, 8]

    def test_the_whole_slice_is_the_flow(self) -> None:
        flow = fl.from_range(3)
        assert flow[:].node is flow.node

    def test_a_step_without_a_sign_keeps_the_effects(self) -> None:
        assert fl.from_range(6)[1:5:2].effects == frozenset()
        assert fl.from_range(6)[::-1].effects == {Reordered}
        assert fl.from_range(6).shuffle()[::-1].effects == {Reordered}
        assert fl.from_range(6).shuffle()[::2].effects == {Reordered, Resampled}

    def test_a_slice_is_shown_as_its_operators(self) -> None:
        assert repr(fl.from_range(10)[2:9:3]) == "from_range(10).skip(2).take(7)[::3]"
        assert repr(fl.from_range(10)[8:1:-3]) == "from_range(10).skip(2).take(7)[::3][::-1]"

    def test_reversed_is_a_pass_in_the_opposite_order(self) -> None:
        assert list(reversed(fl.from_range(4))) == [3, 2, 1, 0]

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda f: f[::0], r"^flow\[::0\]: the step must not be 0$"),
            (lambda f: f["a":], r"^flow\['a':\]: a slice is of ints, got 'a'$"),
            (lambda f: f[: 2**70], "a slice is of ints, got"),
            (lambda f: f.repeat()[-3:], r"^flow\[-3:\]: repeat\(\) never ends; put take\(n\) b"),
            (lambda f: f.filter(bool)[:-3], r"^flow\[:-3\]: filter\(bool\) has no known length"),
            (lambda f: f.filter(bool)[::-1], r"collect them first"),
            (lambda f: f["image"], r"components are chosen by \.select\('image'\)$"),
            (lambda f: f[1, 2], r"several positions are a list, flow\[\[3, 1, 4\]\]$"),
            (lambda f: f[1.5], r"positions must be a list of ints, or .* got 1\.5$"),
            (lambda f: f[True], r"positions must be a list of ints, or .* got True$"),
        ],
    )
    def test_an_index_that_makes_no_sense_is_refused(
        self, build: Callable[[Any], object], message: str
    ) -> None:
        with pytest.raises(InvalidFlow, match=message):
            build(fl.from_range(5))


class TestIndexing:
    def test_an_int_is_an_element_of_epoch_0(self) -> None:
        flow = fl.from_range(100).shuffle(seed=1).batch(8)
        elements = [batch.tolist() for batch in flow]
        assert [flow[i].tolist() for i in (0, -1, np.int64(3))] == [
            elements[0],
            elements[-1],
            elements[3],
        ]

    def test_an_int_beyond_the_end_is_an_index_error(self) -> None:
        with pytest.raises(IndexError, match="position 5 is beyond the 5 elements"):
            fl.from_range(5)[5]

    @pytest.mark.parametrize("begin", [fl.from_items, fl.from_dataset])
    def test_a_flow_is_not_taken_for_a_sequence(self, begin: Callable[[Any], object]) -> None:
        with pytest.raises(InvalidFlow, match="is a flow already: chain operators to it"):
            begin(fl.from_range(3))


class TestSelectRows:
    @given(st.data(), st.integers(1, 12), st.booleans())
    def test_the_elements_are_at_the_positions(
        self, data: st.DataObject, length: int, stream: bool
    ) -> None:
        positions = data.draw(st.lists(st.integers(-length, length - 1)))
        source: Flow[int, Any] = fl.from_range(length)
        source = source.shuffle(3) if stream else source
        elements, flow = source.collect(), source.select_rows(positions)
        assert flow.collect() == [elements[i] for i in positions]
        assert len(flow) == len(positions)

    @given(st.lists(st.integers(0, 9)))
    def test_positions_resolve_to_the_reference(self, positions: list[int]) -> None:
        flow: Flow[int, Any] = fl.from_range(10).shuffle()[positions]
        assert resolved(flow) == passes(flow, 3) == reference(flow, 3)

    @pytest.mark.parametrize(
        ("positions", "effects"),
        [
            ([1, 3, 4], set()),
            ([], set()),
            ([3, 1], {Reordered}),
            ([1, 1, 3], {Resampled}),
            ([1, 3, 1], {Reordered, Resampled}),
            (range(3), set()),
            (np.array([2, 1], np.uint8), {Reordered}),
        ],
    )
    def test_the_effects_are_those_of_the_positions(
        self, positions: Any, effects: set[type]
    ) -> None:
        assert fl.from_range(5)[positions].effects == effects

    def test_positions_in_a_shuffled_flow_are_random_rows(self) -> None:
        flow = fl.from_range(5).shuffle()[[1, 3]]
        assert flow.effects == {Reordered, Resampled}
        assert "select_rows(2 positions) after shuffle() takes other rows" in flow.explain()

    def test_no_other_element_is_computed(self) -> None:
        flow = fl.from_range(10**12).map(lambda i: 1 // (i - 5))
        assert flow[[6, 7, -1]].collect() == [1, 0, 0]

    @pytest.mark.parametrize("numbers", [[2, 0], [1, 2, 1, 1]])
    def test_each_element_may_be_changed_as_a_run_computes_each(self, numbers: list[int]) -> None:
        def add(x: NDArray[np.int64]) -> NDArray[np.int64]:
            x += 1
            return x

        flow = fl.from_range(3).map(lambda i: np.full(2, i)).select_rows(numbers).map(add)
        expected = [[i + 1, i + 1] for i in numbers]
        assert [x.tolist() for x in flow] == expected
        assert [x.tolist() for _, x in flow.node.reference(0)] == expected
        assert [x.tolist() for x in flow.prefetch(procs=1)] == expected

    def test_a_repeated_element_is_read_only(self) -> None:
        flow = fl.from_iterable([np.zeros(2)] * 2).fixed_size(2).shuffle(2)[[0, 0]]
        assert not any(x.flags.writeable for x in flow)

    def test_a_state_distinguishes_positions(self) -> None:
        flow = fl.from_range(5)
        state = iter(flow[[1, 2]]).state_dict()
        assert list(flow[[1, 2]].resume(state)) == [1, 2]
        with pytest.raises(fl.StateMismatch, match="select_rows"):
            flow[[1, 3]].resume(state)

    def test_changing_the_list_does_not_change_the_flow(self) -> None:
        positions = np.array([1, 2])
        flow = fl.from_range(5)[positions]
        positions[:] = 0
        assert flow.collect() == [1, 2]

    @pytest.mark.parametrize(
        ("positions", "message"),
        [
            ([1, 9, 7], r"positions\[1\] is 9, and from_range\(5\) has 5 .*; 2 of 3 positions are"),
            ([-6], r"positions\[0\] is -6"),
            ([2**70], "must be a list of ints"),
            ([1.0], r"must be a list of ints, or an array of them with one axis, got \[1\.0\]$"),
            ("12", "must be a list of ints.* got '12'$"),
            ([[1], [2]], "must be a list of ints"),
            (np.array([True, False]), r"got bool\[2\]; np.flatnonzero\(mask\) makes positions"),
            (None, "must be a list of ints.* got None$"),
        ],
    )
    def test_other_positions_are_refused(self, positions: Any, message: str) -> None:
        with pytest.raises(InvalidFlow, match=f"^select_rows: .*{message}"):
            fl.from_range(5).select_rows(positions)

    def test_a_flow_of_unknown_length_is_refused(self) -> None:
        unsized: Any = fl.from_iterable([1, 2])
        with pytest.raises(InvalidFlow, match=r"^select_rows: from_iterable\(list\) has no known"):
            unsized.select_rows([0])
        endless: Any = fl.from_range(2).repeat()
        with pytest.raises(InvalidFlow, match=r"^select_rows: repeat\(\) never ends"):
            endless.select_rows([0])


@pytest.mark.parametrize("dtype", [None, np.uint64])
def test_positions_beyond_64_bits_are_refused(dtype: Any) -> None:
    with pytest.raises(InvalidFlow, match="positions contain 18446744073709551615"):
        fl.from_range(5).select_rows(np.array([2**64 - 1], dtype))


def test_the_opposite_order_needs_a_length_below_on_error_too() -> None:
    flow = fl.from_range(6).batch(2, collate=list)[::-1]
    assert flow.collect() == [[4, 5], [2, 3], [0, 1]]
    with pytest.raises(InvalidFlow, match="has no known length"):
        flow.prefetch(0, on_error="skip")

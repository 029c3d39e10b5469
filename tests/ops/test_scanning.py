"""scan, take_while, skip_while: compared with itertools; states, errors and types."""

from __future__ import annotations

from itertools import accumulate, count, dropwhile, takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Endless, InvalidFlow, Resampled, SpecMismatch, Unsized
from flowdsl.effects import Reordered

numbers = st.lists(st.integers(0, 9), max_size=12)


def total(state: int, x: int) -> tuple[int, int]:
    return state + x, state + x


class TestScan:
    @given(numbers, st.integers(-9, 9))
    def test_a_scan_accumulates(self, items: list[int], start: int) -> None:
        flow = fl.from_items(items).scan(total, start)
        assert flow.collect() == list(accumulate(items, initial=start))[1:]
        assert len(flow) == len(items)

    def test_every_pass_begins_with_a_copy_of_the_state(self) -> None:
        seen: list[int] = []

        def remember(before: list[int], x: int) -> tuple[list[int], int]:
            before.append(x)
            return before, len(before)

        flow = fl.from_range(3).scan(remember, seen)
        assert list(flow) == list(flow.epoch(1)) == [1, 2, 3]
        assert seen == []

    def test_a_scan_after_a_filter_keeps_positions(self) -> None:
        flow = fl.from_range(6).filter(lambda i: i % 2 == 1).scan(total, 0)
        assert list(flow.node.reference(0)) == [(1, 1), (3, 4), (5, 9)]

    def test_the_annotation_of_the_function_is_the_spec(self) -> None:
        assert str(fl.from_range(3).scan(total, 0).node.spec(probe=False)) == "int"
        pairs = fl.from_range(3).scan(lambda s, i: (s, np.zeros(2)), 0)
        assert str(pairs.spec) == "float64[2]"

    def test_a_resumed_scan_continues_with_its_state(self) -> None:
        flow = fl.from_range(6).scan(total, 0)
        run = iter(flow)
        assert [next(run) for _ in range(3)] == [0, 1, 3]
        assert list(flow.resume(run.state_dict())) == [6, 10, 15]

    def test_an_error_names_the_element(self) -> None:
        with pytest.raises(ElementError, match=r"scan\(fail\) failed on element 2 .*was 2"):
            fl.from_range(5).scan(fail, 0).collect()

    def test_a_result_that_is_not_a_pair_is_an_error(self) -> None:
        one: Any = lambda state, x: state + x  # noqa: E731
        with pytest.raises(ElementError) as caught:
            fl.from_range(5).scan(one, 0).collect()
        assert isinstance(caught.value.__cause__, SpecMismatch)
        assert "must return a tuple of the next state and an element, got 0" in str(caught.value)

    def test_what_is_not_a_function_is_refused(self) -> None:
        flow: Any = fl.from_range(3)
        with pytest.raises(InvalidFlow, match=r"^scan: func must be callable, got 0"):
            flow.scan(0, total)


def fail(state: int, x: int) -> tuple[int, int]:
    return state, 1 // (x - 2)


class TestWhile:
    @given(numbers, st.integers(0, 9))
    def test_a_pass_ends_or_begins_at_the_first_other_element(
        self, items: list[int], limit: int
    ) -> None:
        flow = fl.from_items(items)
        taken, skipped = (
            flow.take_while(lambda x: x < limit),
            flow.skip_while(lambda x: x < limit),
        )
        assert taken.collect() == list(takewhile(lambda x: x < limit, items))
        assert skipped.collect() == list(dropwhile(lambda x: x < limit, items))
        assert taken.effects == skipped.effects == {Unsized}

    def test_no_element_after_the_end_is_read(self) -> None:
        flow = fl.from_iterable(lambda: count()).map(lambda i: 1 / (4 - i))
        assert flow.take_while(lambda x: x < 0.5).collect() == [1 / 4, 1 / 3]

    def test_after_a_shuffle_chance_decides(self) -> None:
        flow = fl.from_range(9).shuffle()
        for part in (flow.take_while(bool), flow.skip_while(bool)):
            assert part.effects == {Reordered, Resampled, Unsized}

    def test_an_endless_flow_stays_endless(self) -> None:
        flow = fl.from_range(9).repeat()
        assert flow.take_while(bool).effects == {Resampled, Unsized, Endless}
        assert flow.skip_while(lambda i: i < 7).take(3).collect() == [7, 8, 0]

    def test_an_error_names_the_element(self) -> None:
        flow = fl.from_range(5).map(lambda i: 2 - i)
        with pytest.raises(ElementError, match=r"take_while\(<lambda>\) failed on element 2 "):
            flow.take_while(lambda x: 1 // x >= 0).collect()
        with pytest.raises(InvalidFlow, match="there is no predicate=; write take_while"):
            flow.take_while(predicate=bool)  # type: ignore[call-overload]


def test_equal_components_are_printed_once() -> None:
    windows = fl.from_items(np.zeros((60, 3))).window(49)
    assert "(tuple of 49 x float64[3])" in windows.explain()
    assert str(fl.from_items([(1, 2, 3, 4)]).spec) == "(int, int, int, int)"

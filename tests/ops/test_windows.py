"""window: dilation, what becomes of a remainder, and windows of several streams."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, InvalidFlow, Reordered, Resampled, Unsized

ROWS = fl.from_range(7)
sizes = st.integers(1, 4)


def parity(i: int) -> int:
    return i % 2


@pytest.mark.parametrize("procs", [0, 1])
@pytest.mark.parametrize("flow", [ROWS, fl.from_iterable(range(7))], ids=["rows", "stream"])
def test_a_dilation_is_the_distance_between_the_elements_of_a_window(
    flow: fl.Flow[int, Any], procs: int
) -> None:
    windows = flow.window(3, stride=1, dilation=2).prefetch(procs=procs)
    assert windows.collect() == [(0, 2, 4), (1, 3, 5), (2, 4, 6)]


@given(st.integers(0, 20), sizes, sizes, sizes, st.sampled_from(["drop", "keep"]))
def test_windows_are_slices(
    length: int, size: int, stride: int, dilation: int, remainder: Literal["drop", "keep"]
) -> None:
    items, span = range(length), (size - 1) * dilation + 1
    windows = [tuple(items[i : i + span : dilation]) for i in range(0, length, stride)]
    expected = [x for x in windows if len(x) == size or remainder == "keep"]
    for flow in (fl.from_range(length), fl.from_range(length).filter(lambda i: True)):
        found = flow.window(size, stride, dilation=dilation, remainder=remainder)
        assert found.collect() == expected
        assert found.node.length in (None, len(expected))


def test_a_remainder_is_dropped_kept_or_filled() -> None:
    assert ROWS.window(3, 2).collect() == [(0, 1, 2), (2, 3, 4), (4, 5, 6)]
    assert ROWS.window(3, 2, remainder="keep").collect()[3:] == [(6,)]
    filled = ROWS.window(3, 2, remainder="fill").collect()
    assert [window for window, _ in filled][2:] == [(4, 5, 6), (6, 6, 6)]
    assert [mask.tolist() for _, mask in filled][2:] == [[True] * 3, [True, False, False]]
    assert len(ROWS.window(3, 2, remainder="keep")) == len(filled) == 4


def test_the_spec_has_the_size_where_all_windows_have_it() -> None:
    windows = fl.from_items(np.zeros((9, 3))).window
    assert str(windows(2, remainder="fill").spec) == "((float64[3], float64[3]), bool[2])"
    assert str(windows(4, remainder="keep", stack=True).spec) == "float64[?, 3]"
    assert str(windows(4, remainder="fill", stack=True).spec) == "(float64[4, 3], bool[4])"


def test_a_dilated_window_reads_late() -> None:
    flow = fl.from_range(10**12).window(2, dilation=10**6, remainder="keep").shuffle(seed=3)
    assert all(b == a + 10**6 for a, b in flow.take(2))


@pytest.mark.parametrize("key", [None, parity], ids=["", "key"])
@pytest.mark.parametrize("flow", [ROWS, fl.from_iterable(range(7))], ids=["rows", "stream"])
def test_a_window_may_be_longer_than_any_pass(flow: fl.Flow[int, Any], key: Any) -> None:
    window: Any = flow.window
    assert window(2**40, key=key).collect() == []
    assert window(4, dilation=2**61, key=key).collect() == []
    kept = window(4, 2**61, dilation=2**61, remainder="keep", key=key)
    assert kept.collect() == [(0,)] + [(1,)] * (key is not None)


def test_windows_by_key_are_the_windows_of_each_stream() -> None:
    flow = ROWS.window(2, key=parity)
    assert flow.collect() == [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6)]
    assert flow.effects == {Reordered, Resampled, Unsized}
    kept = ROWS.window(2, 2, remainder="keep", key=parity).collect()
    assert kept == [(0, 2), (1, 3), (4, 6), (5,)]
    stacked = ROWS.window(3, key=parity, stack=True).collect()
    assert [window.tolist() for window in stacked] == [[0, 2, 4], [1, 3, 5], [2, 4, 6]]


def test_a_window_by_key_is_yielded_with_its_last_element() -> None:
    stream = iter(range(9))
    run = iter(fl.from_iterable(stream).window(2, key=parity))
    assert next(run) == (0, 2)
    assert next(stream) == 3


def test_a_key_that_is_not_hashable_names_the_element() -> None:
    with pytest.raises(ElementError) as caught:
        ROWS.window(2, key=lambda i: [i] if i == 3 else i).collect()  # type: ignore[arg-type, return-value]
    assert caught.value.position == 3
    assert "row 3 of from_range(7)" in str(caught.value)
    assert "the key must be hashable" in str(caught.value)
    assert "returned list" in str(caught.value)


def test_a_key_that_fails_names_the_element() -> None:
    with pytest.raises(ElementError, match=r"row 1 of from_items.*ZeroDivisionError"):
        fl.from_items([1, 0]).window(2, key=lambda i: 1 // i).collect()


def test_windows_by_key_that_do_not_stack_name_their_first_row() -> None:
    ragged = ROWS.map(lambda i: np.zeros(i))
    with pytest.raises(ElementError, match=r"row 0 of from_range.* and 1 more of its group"):
        ragged.window(2, key=lambda x: len(x) % 2, stack=True).collect()


@pytest.mark.parametrize("bad", ["pad", None, True])
def test_another_remainder_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidFlow, match=r"^window: remainder must be 'drop', 'keep' or 'fill'"):
        ROWS.window(2, remainder=bad)


@pytest.mark.parametrize("options", [{"dilation": 0}, {"dilation": 1.5}, {"key": 3}], ids=str)
def test_other_arguments_are_refused(options: Any) -> None:
    (name,) = options
    with pytest.raises(InvalidFlow, match=rf"^window: {name} must be"):
        ROWS.window(2, **options)


def test_shorter_windows_of_keys_come_in_the_order_of_their_first_elements() -> None:
    rows = fl.from_items(["a1", "b1", "a2"])
    windows = rows.window(2, key=lambda row: row[0], remainder="keep")
    assert windows.collect() == [("a1", "a2"), ("b1",), ("a2",)]

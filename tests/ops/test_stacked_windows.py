"""Stacked windows and batches over arrays in memory, which are slices of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, InvalidFlow, Resampled
from flowdsl.nodes import Windowed

sizes = st.integers(1, 5)
lengths = st.integers(0, 12)

COLUMNS: dict[str, Callable[[int], Any]] = {
    "scalars": lambda n: np.arange(n, dtype=np.uint8),
    "rows": lambda n: np.arange(3 * n, dtype=np.float32).reshape(n, 3),
    "in Fortran order": lambda n: np.asfortranarray(np.arange(3.0 * n).reshape(n, 3)),
    "every second": lambda n: np.arange(2 * n)[::2],
    "backwards": lambda n: np.arange(n)[::-1],
    "a tuple": lambda n: (np.arange(n), np.ones((n, 2, 2))),
    "a dict": lambda n: {"x": np.arange(n), "y": {"z": np.ones((n, 2), bool)}},
    "of another byte order": lambda n: np.arange(n, dtype=">f4"),
    "text": lambda n: np.array([f"{i}" for i in range(n)], "U3"),
    "times": lambda n: np.arange(n).astype("M8[s]"),
}


def equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, tuple | list):
        for a, b in zip(one, other, strict=True):
            equal(a, b)
    elif isinstance(one, dict):
        equal([*one.items()], [*other.items()])
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert (one == other).all()
    else:
        assert one == other


@pytest.mark.parametrize("form", COLUMNS)
@given(lengths, sizes, sizes, st.integers(1, 3), st.booleans())
def test_elements_equal_the_reference(
    form: str, length: int, size: int, stride: int, dilation: int, shuffled: bool
) -> None:
    rows: Any = fl.from_items(COLUMNS[form](length))
    windows = [
        rows.window(size, stride, dilation=dilation, remainder=remainder, stack=True)
        for remainder in ("drop", "keep", "fill")
    ]
    whole = rows.batch(size, drop_remainder=True)
    in_batches = [] if form == "text" else [whole.batch(2), windows[0].batch(2)]
    for flow in (*windows, rows.batch(size), whole, *in_batches):
        above = flow.shuffle(seed=1) if shuffled else flow
        equal([*above], [x for _, x in above.node.reference(0)])


def test_a_window_of_an_array_is_a_view_of_it() -> None:
    array = np.zeros((60, 3))
    window = next(iter(fl.from_items(array).window(49, stack=True)))
    assert np.shares_memory(window, array)
    assert not window.flags.writeable
    assert array.flags.writeable


def test_a_batch_of_an_array_is_a_copy_of_it() -> None:
    array = np.zeros((60, 3))
    flow = fl.from_items(array)
    for batch in (next(iter(flow.batch(8))), next(iter(flow.window(9, stack=True).batch(8)))):
        assert not np.shares_memory(batch, array)
        assert batch.flags.writeable
        assert batch.flags.c_contiguous


def test_only_arrays_whose_rows_stack_to_themselves_are_sliced() -> None:
    for form, columns in COLUMNS.items():
        node: Any = fl.from_items(columns(9)).window(2, stack=True).node
        assert isinstance(node, Windowed)
        is_sliced = node.open_views() is not None
        assert is_sliced == (form not in ("of another byte order", "text", "times"))


def test_windows_of_computed_rows_are_stacked() -> None:
    flow = fl.from_range(5).map(lambda i: (i, np.full(2, i))).window(2, 3, stack=True)
    (numbers, arrays), second = flow.collect()
    assert numbers.tolist() == [0, 1]
    assert arrays.tolist() == [[0, 0], [1, 1]]
    assert not arrays.flags.writeable
    assert second[0].tolist() == [3, 4]
    assert flow.prefetch(procs=2).collect()[1][1].tolist() == [[3, 3], [4, 4]]


def test_windows_of_a_stream_are_stacked() -> None:
    flow = fl.from_iterable(range(5)).window(2, stack=True)
    assert [window.tolist() for window in flow] == [[0, 1], [1, 2], [2, 3], [3, 4]]


def test_the_spec_and_the_effects_are_known() -> None:
    flow = fl.from_items(np.zeros((60, 3))).window(49, stack=True)
    assert str(flow.spec) == "float64[49, 3]"
    assert flow.effects == {Resampled}
    assert len(flow) == 12
    assert flow.repeat().effects == {Resampled, Endless}
    assert flow.node.title == "window(49, stack=True)"


def test_a_profile_has_their_times() -> None:
    windows = fl.from_items(np.zeros((60, 3))).window(9, stack=True)
    (stage,) = windows.map(np.sum).profile(seconds=0.05).statistics.stages
    assert {"window(9, stack=True)", "map(sum)"} <= {cost.title for cost in stage.costs}
    (stage,) = windows.batch(2).profile(seconds=0.05).statistics.stages
    assert [cost.title for cost in stage.costs] == ["batch(2)"]  # it copies from the rows


def test_other_arguments_are_refused() -> None:
    flow: Any = fl.from_range(5)
    with pytest.raises(InvalidFlow, match=r"^window: stack must be True or False, got 1$"):
        flow.window(2, stack=1)
    with pytest.raises(InvalidFlow, match=r"^window: size must be an int >= 1, got 0$"):
        flow.window(0, stack=True)

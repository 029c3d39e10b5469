"""Rows that are stacked as they arrive form the same batch as rows stacked at the end."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.elements import preallocated
from flowdsl.elements.preallocated import LEAST_BYTES, BatchRows, NextRow
from flowdsl.elements.stacking import stack
from flowdsl.elements.structure import components
from flowdsl.errors import SpecMismatch
from flowdsl.executor.program import OperatorFailed, Program
from flowdsl.nodes import Indices
from flowdsl.testing.elements import same
from tests.rows import FORMS, ROWS, Pair

FORM = st.sampled_from([*FORMS.values(), lambda x, y: x])
ARRAYS = st.builds(
    lambda shape, dtype, value: np.full(shape, value, dtype),
    st.sampled_from([(2,), (3,), (2, 2), (0,), ()]),
    st.sampled_from(["u1", "f4", ">i2", "M8[s]", "U3", "O", "f4,i2"]),
    st.integers(0, 9),
)


def outcome(rows: Any) -> Any:
    try:
        return stack(rows)
    except SpecMismatch as error:
        return str(error)


def came(rows: list[Any], size: int, least: int = 0) -> BatchRows:
    """The rows after they arrived one at a time."""
    with mock.patch.object(preallocated, "LEAST_BYTES", least):
        there = BatchRows(size, np.zeros)
        there.extend(iter(rows))
    return there


@given(ROWS, st.integers(0, 2))
def test_rows_that_stack_are_stacked_as_they_arrive(rows: list[Any], more: int) -> None:
    assert same(stack(came(rows, len(rows) + more)), stack(rows))


@given(st.lists(st.tuples(FORM, ARRAYS, ARRAYS), min_size=1, max_size=4), st.integers(0, 2))
def test_rows_that_differ_raise_the_same_error_as_stack(
    parts: list[tuple[Any, Any, Any]], more: int
) -> None:
    rows = [form(x, y) for form, x, y in parts]
    expected, got = outcome(rows), outcome(came(rows, len(rows) + more))
    assert got == expected if isinstance(expected, str) else same(got, expected)


@given(FORM, st.lists(ARRAYS, min_size=2, max_size=4))
def test_one_differing_row_raises_the_same_error_as_stack(form: Any, arrays: list[Any]) -> None:
    first, *others = arrays
    for k in range(len(others) + 1):
        rows = [form(first, 1)] * 3
        rows[k % 3] = form(others[k - 1], 1)
        expected, got = outcome(rows), outcome(came(rows, 3))
        assert got == expected if isinstance(expected, str) else same(got, expected)


@pytest.mark.parametrize("form", [*FORMS.values(), lambda x, y: x])
@pytest.mark.parametrize("k", [1, 2])
def test_a_memory_mapped_row_is_stacked_without_a_place(form: Any, k: int, tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(3,))
    mapped[:] = 7
    rows = [form(np.ones(3, np.uint8), 1) for _ in range(3)]
    rows[k] = form(mapped, 1)
    assert same(stack(came(rows, 3)), stack(rows))


def test_a_shorter_tuple_raises_the_same_error_as_stack() -> None:
    rows = [(1, LARGE), (1,)]
    assert outcome(came(rows, 2)) == outcome(rows)


LARGE = np.zeros(LEAST_BYTES, np.uint8)


def of(batch: Any) -> list[int]:
    """The number that fills each row of a batch."""
    first = (
        batch
        if isinstance(batch, np.ndarray)
        else next(part for _, part in components(batch) or [])
    )
    return [int(i) for i in first[:, 0]]


@pytest.mark.parametrize("form", [lambda x: x, lambda x: (x, 1), lambda x: {"x": x, "y": 1}])
def test_memory_of_a_row_is_released_before_the_next_is_made(form: Any) -> None:
    last: list[weakref.ref[Any]] = []

    def made(i: int) -> Any:
        assert all(ref() is None for ref in last[-2:-1])
        x = np.full(LEAST_BYTES, i, np.uint8)
        last.append(weakref.ref(x))
        return form(x)

    for flow in (fl.from_range(6).map(made), fl.from_iterable(range(6)).map(made)):
        for batch in flow.batch(3):
            assert same(batch, stack([form(np.full(LEAST_BYTES, i, np.uint8)) for i in of(batch)]))


def test_each_row_is_in_its_place_before_the_next_is_requested() -> None:
    asked: list[Any] = []

    def allocate(shape: Any, dtype: Any) -> Any:
        asked.append(np.zeros(shape, dtype))
        return asked[-1]

    def rows() -> Iterator[Any]:
        for i in (1, 2, 3):
            assert not asked or asked[0][:, 0].tolist()[: i - 1] == [*range(1, i)]
            yield np.full(LEAST_BYTES, i, np.uint8), i

    there = BatchRows(3, allocate)
    there.extend(rows())
    x, y = stack(there)
    assert x is asked[0]
    assert (x[:, -1].tolist(), y.tolist()) == ([1, 2, 3], [1, 2, 3])


@pytest.mark.parametrize(
    "rows",
    [
        [(LARGE[1:], 1)] * 3,
        [(LARGE.view(np.matrix), 1)] * 3,
        [(LARGE.astype(object), 1)] * 3,
        [Pair([LARGE], 1)] * 3,
        [LARGE],
    ],
    ids=["small", "another class", "objects", "in a list", "one row"],
)
def test_small_or_unstackable_arrays_are_not_preallocated(rows: list[Any]) -> None:
    def allocate(shape: Any, dtype: Any) -> Any:
        raise AssertionError

    there = BatchRows(len(rows), allocate)
    there.extend(rows)
    assert all(a is b for a, b in zip(there, rows, strict=True))


def test_too_large_batches_are_not_preallocated() -> None:
    there = BatchRows(2**61, np.empty)
    there.extend([LARGE, LARGE])
    assert there[0] is LARGE


def test_lack_of_memory_is_an_error_of_stacking() -> None:
    def allocate(shape: Any, dtype: Any) -> Any:
        raise MemoryError

    there = BatchRows(2, allocate)
    there.extend([LARGE, LARGE])
    assert there[1] is LARGE


def test_fewer_rows_use_only_the_memory_they_need() -> None:
    x = stack(came([LARGE] * 2, 9, LEAST_BYTES))
    assert x.base is None
    assert x.shape == (2, LEAST_BYTES)


@pytest.mark.parametrize("procs", [0, 1])
def test_batches_in_a_flow_use_preallocated_memory(procs: int) -> None:
    def row(i: int) -> Any:
        return {"x": np.full(LEAST_BYTES, i, np.uint8), "y": i}

    batches = fl.from_range(7).map(row).batch(3).prefetch(procs=procs).collect()
    assert [b["x"][:, -1].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [b["y"].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6]]


def test_stacking_time_counts_for_the_batch_operator() -> None:
    def batch_of(rows: list[Any], allocate: Any = None) -> Any:
        assert type(rows) is list
        return len(rows)

    flow = fl.from_range(4).map(lambda i: np.full(LEAST_BYTES, i, np.uint8)).batch(2)
    with mock.patch.object(type(flow.node), "gather", lambda node, rows, allocate: batch_of(rows)):
        at = Indices.span(0, 0, 2)
        assert list(Program(flow.node, time_operators=True).elements(at)) == [2, 2]
        with pytest.raises(OperatorFailed):
            list(Program(flow.node).elements(at))


X = np.zeros(LEAST_BYTES, np.uint8)


@pytest.mark.parametrize(
    ("row", "names"), [(X, {""}), ((1, X), {"1"}), (Pair(X, 1), {"0"}), ({"a": X}, {"a"})]
)
def test_the_places_of_the_next_row_are_by_name_or_by_number(row: Any, names: set[str]) -> None:
    batch, next_row = BatchRows(2, np.zeros), NextRow()
    batch.next_row = next_row
    seen: list[set[str]] = []

    def read() -> Iterator[Any]:
        for _ in range(2):
            seen.append({*next_row.out})
            yield row

    batch.extend(read())
    assert seen == [set(), names]
    assert not next_row.out

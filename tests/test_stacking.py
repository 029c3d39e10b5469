"""Stacking casts nothing, and refuses what differs with a name for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
from hypothesis import assume, given
from numpy.typing import NDArray

from flowdsl.elements import (
    components,
    leaves,
)
from flowdsl.errors import SpecMismatch
from flowdsl.specs import (
    leaf_specs,
    meet,
    spec_of,
)
from flowdsl.stacking import spec_of_batch, stack
from tests.rows import ROWS, Pair, Point, PointBatch, Unnamed, same

if TYPE_CHECKING:
    pass

D = TypeVar("D", bound=np.generic)


@given(ROWS)
def test_stack_gives_back_every_row(rows: list[object]) -> None:
    batch = leaves(stack(rows))
    for i, row in enumerate(rows):
        for column, leaf in zip(batch, leaves(row), strict=True):
            assert isinstance(column, np.ndarray)
            assert same(column[i], np.asarray(leaf, column.dtype)[()])


@given(ROWS)
def test_stack_keeps_dtypes_and_the_spec_says_so(rows: list[object]) -> None:
    announced = spec_of_batch(spec_of(rows[0]), len(rows))
    assert meet(announced, spec_of(stack(rows))) == announced
    assert str(announced) == str(spec_of(stack(rows)))  # all but the names a tuple has no more
    assert leaf_specs(announced) == [
        (name, spec_of(leaf))
        for (name, _), leaf in zip(leaf_specs(spec_of(rows[0])), leaves(stack(rows)), strict=True)
    ]
    for column, leaf in zip(leaves(stack(rows)), leaves(rows[0]), strict=True):
        assert isinstance(column, np.ndarray)
        fixed = {bool: np.bool_, int: np.int64, float: np.float64}
        wanted = leaf.dtype if isinstance(leaf, (np.ndarray, np.generic)) else fixed[type(leaf)]
        assert column.dtype == wanted


@given(ROWS)
def test_stack_gives_the_form_of_the_rows(rows: list[object]) -> None:
    def form(batch: object, row: object) -> None:
        parts = components(row)
        if parts is None:
            assert isinstance(batch, np.ndarray)
            return
        stacks_to = {tuple: tuple, Pair: tuple, dict: dict, Point: PointBatch}
        assert type(batch) is stacks_to[type(row)]
        for (_, inner), (_, part) in zip(components(batch) or (), parts, strict=True):
            form(inner, part)

    form(stack(rows), rows[0])


@given(ROWS)
def test_stack_takes_all_its_memory_from_allocate(rows: list[object]) -> None:
    given_out: list[NDArray[Any]] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    columns = leaves(stack(rows, allocate))
    assert [id(column) for column in columns] == [id(array) for array in given_out]


@given(ROWS, ROWS)
def test_stack_refuses_what_differs(some: list[object], others: list[object]) -> None:
    assume(spec_of(some[0]) != spec_of(others[0]))
    with pytest.raises(SpecMismatch) as caught:
        stack([*some, others[0]])
    assert f"row {len(some)}" in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ([1, 2**40, -(2**63), 2**63 - 1], np.int64),
        ([0, 1], np.int64),
        ([0.0, 1.0], np.float64),
        ([True, False], np.bool_),
        ([np.uint8(1), np.uint8(255)], np.uint8),
        ([np.float16(1)], np.float16),
    ],
)
def test_the_dtype_depends_on_the_type_alone(rows: list[Any], dtype: type[np.generic]) -> None:
    batch = stack(rows)
    assert batch.dtype == dtype
    assert batch.tolist() == rows


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([1, 2.7], ["element: row 0", "is int", "row 1 is float"]),
        ([1, True], ["is int", "row 1 is bool"]),
        ([np.uint8(1), 300.0], ["is uint8[]", "row 1 is float"]),
        ([np.uint8(1), np.uint8(2), np.int16(3)], ["is uint8[]", "row 2 is int16[]"]),
        ([np.float32(1), np.zeros((), np.float32)], ["is float32", "row 1 is ndarray"]),
        ([np.zeros((), np.float32), np.float32(1)], ["is ndarray", "row 1 is float32"]),
        ([np.zeros(2, "<i4"), np.zeros(2, ">i4")], ["is int32[2]", "row 1 is >i4[2]"]),
        ([np.zeros((2, 3)), np.zeros((3, 2))], ["is float64[2, 3]", "row 1 is float64[3, 2]"]),
        ([(1, np.zeros(2)), (1, np.zeros(3))], ["element.1: row 0", "[2]", "row 1", "[3]"]),
        ([Pair(1, 2), Pair(1, 2.0)], ["element.y: row 0", "is int", "row 1 is float"]),
        ([{"a": {"b": 1}}, {"a": {"b": True}}], ["element.a.b: row 0", "row 1 is bool"]),
        ([{"a": 1}, {"a": 1}, {"b": 1}], ["{a: int}", "row 2 is {b: int}"]),
        ([(1, 2), (1,)], ["(int, int)", "row 1 is (int)"]),
        ([(1, 2), Pair(1, 2)], ["(int, int)", "row 1 is Pair(x: int, y: int)"]),
        (
            [np.datetime64("2020-01-01", "D"), np.datetime64("2020-01-01T05", "h")],
            ["is datetime64[D][]", "row 1 is datetime64[h][]"],
        ),
        ([(1, 5), (1, 2**63)], ["element.1: row 1", str(2**63), "int64"]),
        ([-(2**63) - 1], ["row 0", str(-(2**63) - 1), "int64"]),
        (["a", "b"], ["element: str does not stack", "collate"]),
        ([{"a": None}], ["element.a: NoneType does not stack"]),
        ([[1], [2]], ["list does not stack"]),
        ([np.str_("a"), np.str_("bc")], ["str_ does not stack"]),
        ([np.array([{}, 1])], ["an array of Python objects does not stack"]),
        ([np.ma.masked_array([1, 2], [True, False])], ["MaskedArray does not stack"]),
        ([Unnamed(1)], ["Unnamed does not name its batch type"]),
    ],
)
def test_a_refusal_names_the_component_the_row_and_both_sides(
    rows: list[object], said: list[str]
) -> None:
    with pytest.raises(SpecMismatch) as caught:
        stack(rows)
    assert [part for part in said if part not in str(caught.value)] == []


def test_rows_of_a_memory_map_stack(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6).reshape(3, 2))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    batch = stack(list(rows))
    assert type(batch) is np.ndarray
    assert batch.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_dicts_stack_by_name() -> None:
    batch = stack([{"a": 1, "b": 2.0}, {"b": 3.0, "a": 4}])
    assert {name: column.tolist() for name, column in batch.items()} == {
        "a": [1, 4],
        "b": [2.0, 3.0],
    }


def test_empty_tuples_stack() -> None:
    assert stack([(), ()]) == ()

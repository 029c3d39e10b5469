"""Stacking and padding do not cast, and refuse rows that differ with a precise error."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.elements.batch_specs import spec_of_batch, spec_of_padded_batch, spec_of_row
from flowdsl.elements.declared_specs import spec_of_type
from flowdsl.elements.matching_specs import differences, meet
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    StructSpec,
    ValueSpec,
    is_known,
    leaf_specs,
    spec_of,
    with_sizes,
    without_sizes,
)
from flowdsl.elements.stacking import lists, pad, stack, unstack
from flowdsl.elements.structure import (
    components,
    leaves,
    named_tuple_of,
)
from flowdsl.errors import SpecMismatch
from flowdsl.testing.elements import same
from tests.rows import (
    DTYPES,
    NATURAL,
    NUMBERS,
    ROWS,
    Generator,
    Packed,
    Pair,
    Point,
    PointBatch,
    Spot,
    Unnamed,
    is_text,
    with_arrays,
)

if TYPE_CHECKING:
    pass

D = TypeVar("D", bound=np.generic)

NUMBER_PAIRS: st.SearchStrategy[tuple[Any, np.generic]] = st.sampled_from(
    [(True, np.bool_(False)), (3, np.int64(-4)), (0.5, np.float64(2)), (1j, np.complex128(2))]
)
"""Numbers of Python, each with a NumPy scalar of the dtype with which it stacks."""

SpotBatch = named_tuple_of(Spot)
PackedBatch = named_tuple_of(Packed)


@given(ROWS)
def test_a_stacked_batch_contains_every_row(rows: list[object]) -> None:
    batch = leaves(stack(rows))
    for i, row in enumerate(rows):
        for column, leaf in zip(batch, leaves(row), strict=True):
            assert isinstance(column, np.ndarray)
            assert same(column[i], np.asarray(leaf, column.dtype)[()])


@given(ROWS)
def test_stack_keeps_dtypes_as_its_spec_predicts(rows: list[object]) -> None:
    announced = spec_of_batch(spec_of(rows[0]), len(rows))
    assert meet(announced, spec_of(stack(rows))) == announced
    assert str(announced) == str(spec_of(stack(rows)))  # all but the names a tuple has no more
    assert leaf_specs(announced) == [
        (name, spec_of(leaf))
        for (name, _), leaf in zip(leaf_specs(spec_of(rows[0])), leaves(stack(rows)), strict=True)
    ]
    for column, leaf in zip(leaves(stack(rows)), leaves(rows[0]), strict=True):
        assert isinstance(column, np.ndarray)
        fixed = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}
        wanted = leaf.dtype if isinstance(leaf, (np.ndarray, np.generic)) else fixed[type(leaf)]
        assert column.dtype == wanted


@given(ROWS)
def test_a_stacked_batch_has_the_structure_of_the_rows(rows: list[object]) -> None:
    def form(batch: object, row: object) -> None:
        parts = components(row)
        if parts is None:
            assert isinstance(batch, np.ndarray)
            return
        stacks_to = {tuple: tuple, Pair: Pair, dict: dict, Point: PointBatch, Spot: SpotBatch}
        stacks_to[Packed] = PackedBatch
        assert type(batch) is stacks_to[type(row)]
        for (_, inner), (_, part) in zip(components(batch) or (), parts, strict=True):
            form(inner, part)

    form(stack(rows), rows[0])


@given(ROWS)
def test_stack_uses_allocate_for_all_memory(rows: list[object]) -> None:
    given_out: list[NDArray[Any]] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    columns = leaves(stack(rows, allocate))
    assert [id(column) for column in columns] == [id(array) for array in given_out]


@given(ROWS, ROWS)
@example([np.array(False)], [False])
def test_stack_refuses_rows_that_differ(some: list[object], others: list[object]) -> None:
    assume(spec_of_batch(spec_of(some[0]), 1) != spec_of_batch(spec_of(others[0]), 1))
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
        ([np.float64(0.5), 1.5], np.float64),
        ([1.5, np.float64(0.5), 2.5], np.float64),
        ([np.int64(1), 2], np.int64),
        ([True, np.bool_(False)], np.bool_),
        ([np.complex128(1j), 2j], np.complex128),
    ],
)
def test_the_dtype_depends_only_on_the_type(rows: list[Any], dtype: type[np.generic]) -> None:
    batch = stack(rows)
    assert batch.dtype == dtype
    assert batch.tolist() == rows


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([1, 2.7], ["element: row 0", "is int", "row 1 is float"]),
        ([1, True], ["is int", "row 1 is bool"]),
        ([np.uint8(1), 300.0], ["is uint8[]", "row 1 is float"]),
        (
            [1.5, np.float64(2), np.float32(3)],
            ["is float, row 2 is float32[]; float stacks as float64", "np.float32(x) or float(x)"],
        ),
        ([np.float64(1), 2.0, None], ["is float64[], row 2 is NoneType; None does not stack"]),
        ([2.0, np.float64(1), "a"], ["is float, row 2 is str"]),
        ([[np.float64(1), None]], ["is a list that holds NoneType and float64; None does not"]),
        ([np.int32(1), 2], ["is int32[], row 1 is int; int stacks as int64", "np.int32(x) or int"]),
        ([np.bool_(True), 2], ["is bool[], row 1 is int; int stacks as int64", "np.bool(x)"]),
        ([[1.5, np.float32(3)]], ["row 0 of the batch is a list that holds float and float32"]),
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
        ([{1}, {2}], ["element: set does not stack", "collate"]),
        (
            [{"a": None}],
            ["element.a: None does not stack: ", ".filter_map", "a value in its place"],
        ),
        ([(1, "a"), (None, "b")], ["element.0: row 0", "int, row 1 is NoneType; None does not st"]),
        ([[None, None]], ["element: row 0 of the batch is a list of None; None does not stack"]),
        ([[1, None]], ["row 0 of the batch is a list that holds NoneType and int; None does not"]),
        ([date(2024, 1, 31)], ["element: date does not stack, np.datetime64 does", ".map"]),
        ([(1, timedelta(1))], ["element.1: timedelta does not stack, np.timedelta64 does"]),
        ([range(3)], ["element: range does not stack; ", "Make it one of them or leave it out"]),
        ([[{1}], [{2}]], ["element: row 0 of the batch is a list of set, which does not stack"]),
        (
            [[1], [2, 3]],
            [
                "element: row 0 of the batch is int64[1], row 1 is int64[2]; ragged",
                "padded_batch pads them",
            ],
        ),
        ([np.zeros(2), np.zeros(3)], ["row 1 is float64[3]; ragged", "padded_batch pads them"]),
        ([[], [1]], ["row 0 of the batch is int64[0], row 1 is int64[1]; ragged"]),
        ([[[]], [[1]]], ["row 0 of the batch is int64[1, 0], row 1 is int64[1, 1]; ragged"]),
        (
            [[[1]], [2]],
            ["row 0 of the batch is int64[1, 1], row 1 is int64[1]; only equal dtypes and"],
        ),
        ([[1, [2]]], ["row 0 of the batch is a list that holds int and list"]),
        (
            [np.zeros(1, "<U1"), np.zeros(1, ">U3")],
            ["is <U1[1], row 1 is >U3[1]; only equal dtypes"],
        ),
        ([np.zeros(1, "U1"), np.zeros(1, "S1")], ["is <U1[1], row 1 is |S1[1]; only equal dtypes"]),
        ([[], [1], [2.5]], ["row 1 of the batch is list[int], row 2 is list[float]"]),
        ([[True], [1]], ["row 0 of the batch is list[bool], row 1 is list[int]"]),
        ([[np.int8(1)], [1]], ["row 0 of the batch is list[int8[]], row 1 is list[int]"]),
        ([[(1, 2)]], ["element: row 0 of the batch is a list of tuple, which does not stack"]),
        ([[np.zeros(2), np.zeros(2, "f4")]], ["a list that holds arrays of float32 and float64"]),
        ([[np.ma.masked_array([1], [True])]], ["is a list of MaskedArray, which does not stack"]),
        ([[np.array([{}])]], ["is a list of arrays of Python objects, which does not stack"]),
        ([[1], [2.5]], ["element: row 0 of the batch is list[int], row 1 is list[float]"]),
        ([[1, 2.5]], ["row 0 of the batch is a list that holds float and int"]),
        ([[[1], [2, 3]]], ["row 0 of the batch is a ragged list", "padded_batch pads them"]),
        ([[2**63]], ["row 0 of the batch has an int too large for int64"]),
        ([[1], ["a"]], ["element: row 0 of the batch is list[int], row 1 is list[str]"]),
        ([[], []], ["element: every list of the batch is empty", "np.array(items, np.int64)"]),
        ([[[]], [[]]], ["element: every list of the batch is empty"]),
        ([], ["element: there are no rows to stack"]),
        ([np.array([{}, 1])], ["an array of Python objects does not stack"]),
        (
            [np.array(["a"], np.dtypes.StringDType())],
            ["an array of NumPy's StringDType does not stack", ".map(lambda x: x.tolist())"],
        ),
        (
            [[np.array(["a"], np.dtypes.StringDType())]],
            ["is a list of arrays of NumPy's StringDType, which does not stack"],
        ),
        ([np.ma.masked_array([1, 2], [True, False])], ["MaskedArray does not stack"]),
        ([Unnamed(1)], ["Unnamed does not name its batch type"]),
    ],
)
def test_a_refusal_names_the_component_the_row_and_both_specs(
    rows: list[object], said: list[str]
) -> None:
    with pytest.raises(SpecMismatch) as caught:
        stack(rows)
    assert [part for part in said if part not in str(caught.value)] == []


@given(NUMBER_PAIRS, st.data())
def test_a_number_of_python_stacks_as_the_numpy_scalar_of_its_dtype(
    pair: tuple[Any, np.generic], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.sampled_from(pair), min_size=1, max_size=5))
    scalars = np.array(rows, pair[1].dtype)
    assert same(stack(rows), scalars)
    assert same(stack([{"x": row} for row in rows])["x"], scalars)
    assert same(stack([rows, rows]), np.stack([scalars, scalars]))
    assert not list(differences(spec_of(pair[0]), spec_of(pair[1])))


def test_numbers_of_python_and_numpy_are_merged_and_batched() -> None:
    flow = fl.from_items([1.5]).concat(fl.from_items([np.float64(2.5)]))
    assert flow.batch(2).collect()[0].dtype == np.float64


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


# -- lists, text and tensors -----------------------------------------------------------------------


@given(NATURAL)
def test_lists_stack_as_their_arrays_do(rows: list[object]) -> None:
    assert same(stack(rows), stack(list(map(with_arrays, rows))))


@given(NATURAL)
def test_the_spec_of_a_batch_is_kept(rows: list[object]) -> None:
    batch = stack(rows)
    announced = spec_of_batch(spec_of(rows[0]), len(rows))
    met = leaf_specs(meet(announced, spec_of(batch)))
    assert [spec for _, spec in met] == [spec for _, spec in leaf_specs(spec_of(batch))]
    assert is_known(announced)


@given(st.data())
def test_text_of_any_width_stacks(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["<U", ">U", "S"]))
    shape = data.draw(hnp.array_shapes(min_side=0, max_side=3))
    dtypes = st.integers(1, 5).map(lambda width: np.dtype(f"{kind}{width}"))
    rows = data.draw(st.lists(dtypes.flatmap(lambda d: hnp.arrays(d, shape)), min_size=1))
    batch = stack(rows)
    assert batch.dtype == max((row.dtype for row in rows), key=lambda dtype: dtype.itemsize)
    assert batch.tolist() == [row.tolist() for row in rows]
    announced = spec_of_batch(spec_of(rows[0]), len(rows))
    assert meet(announced, spec_of(batch)) == spec_of(batch)
    assert meet(spec_of_row(announced), spec_of(rows[-1])) == spec_of(rows[-1])


def test_text_in_arrays_without_axes_is_text() -> None:
    batch = stack([np.array("ab"), np.array("c")])
    assert batch == ["ab", "c"]
    announced = spec_of_batch(spec_of(np.array("ab")), 2)
    assert meet(announced, spec_of(batch)) == spec_of(batch)
    assert spec_of_batch(spec_of(np.str_("ab")), 2) == announced


class Grade(IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    ("rows", "batch"),
    [
        ([Grade.LOW, Grade.HIGH], np.array([1, 2])),
        ([[Grade.LOW], [Grade.HIGH]], np.array([[1], [2]])),
        ([[np.float32(1), np.float32(2)]], np.array([[1, 2]], np.float32)),
        ([[np.zeros(2), np.ones(2)]], np.array([[[0.0, 0.0], [1.0, 1.0]]])),
        ([[np.zeros(1, "U1"), np.zeros(1, "U3")]], np.zeros((1, 2, 1), "U3")),
        ([OrderedDict(a=1)], {"a": np.array([1])}),
        ([defaultdict(int, a=1)], {"a": np.array([1])}),
        (list(np.array([(1, 2.0)], "i4, f4")), np.array([(1, 2.0)], "i4, f4")),
    ],
)
def test_subclasses_stack_like_their_base(rows: list[object], batch: object) -> None:
    assert same(stack(rows), batch)
    assert meet(spec_of_batch(spec_of(rows[0]), len(rows)), spec_of(batch)) == spec_of(batch)


def test_lists_of_unstackable_items_are_refused_in_advance() -> None:
    for item, name in ((Pair(1, 2), "Pair"), ({"a": 1}, "dict"), ({1}, "set"), (None, "None")):
        with pytest.raises(SpecMismatch, match=rf"^element: each row is a list of {name}[,;]"):
            spec_of_batch(spec_of([item]), 2)


class Tensor:
    """A tensor of another library, which can be read by DLPack."""

    def __init__(self, array: NDArray[Any], device: str = "cpu") -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> object:
        if self.device != "cpu":
            raise BufferError(f"it is on {self.device}")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


FOR_DLPACK = hnp.arrays(
    st.sampled_from(["bool", "i8", "u1", "f2", "f4", "f8", "c8"]).map(np.dtype),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
)


@given(FOR_DLPACK, st.integers(1, 3))
def test_tensors_stack_as_their_arrays_do(array: NDArray[Any], n: int) -> None:
    array = np.asarray(array).T
    tensors: list[Any] = [Tensor(array) for _ in range(n)]
    assert spec_of(tensors[0]) == spec_of(array)
    assert same(stack(tensors), stack([array] * n))
    assert same(stack([tensors]), stack([[array] * n]))
    assert same(pad(tensors, 0), stack([array] * n))
    if array.ndim:
        assert all(map(same, unstack({"x": tensors[0]}), unstack({"x": array})))


class OtherTensor(Tensor):
    """A tensor of a third library."""


@pytest.mark.parametrize("together", [stack, lambda rows: pad(rows, 0)])
@pytest.mark.parametrize("sizes", [(2, 2), (2, 3)])
@pytest.mark.parametrize(
    "kinds", [(Tensor, np.asarray), (np.asarray, Tensor), (Tensor, OtherTensor)]
)
def test_tensors_beside_arrays_are_named(
    together: Callable[[list[Any]], Any], sizes: tuple[int, int], kinds: Any
) -> None:
    rows = [{"x": kind(np.zeros(size))} for kind, size in zip(kinds, sizes, strict=True)]
    library = Tensor.__module__.partition(".")[0]
    names = {np.asarray: "numpy.ndarray"} | {
        kind: f"{library}.{kind.__name__}" for kind in (Tensor, OtherTensor)
    }
    described = [
        f"float64[{size}] ({names[kind]})" for kind, size in zip(kinds, sizes, strict=True)
    ]
    with pytest.raises(SpecMismatch) as caught:
        together(rows)
    assert str(caught.value) == (
        f"element.x: row 0 of the batch is {described[0]}, row 1 is {described[1]}; tensors and "
        f"arrays do not stack together: make all of them arrays with .map"
    )


def test_padding_names_the_row_of_another_class_and_not_one_of_another_size() -> None:
    with pytest.raises(
        SpecMismatch, match=r"row 0 of the batch is float64\[2\].* row 2 is float64"
    ):
        pad([Tensor(np.zeros(2)), Tensor(np.zeros(3)), np.zeros(2)], 0)
    with pytest.raises(SpecMismatch, match="row 0 of the batch is int, row 2 is float64"):
        pad([1, 2, np.zeros(2)], 0)


def test_a_tensor_outside_of_cpu_memory_is_refused() -> None:
    here, there = Tensor(np.zeros(2)), Tensor(np.zeros(2), "cuda:0")
    with pytest.raises(SpecMismatch) as caught:
        stack([(1, here), (2, there)])
    assert str(caught.value).startswith(
        "element.1: row 1 of the batch: NumPy cannot read this Tensor: it is on cuda:0; make it "
        "an array with .map"
    )
    assert spec_of(there) == spec_of_batch(spec_of(there), 2) == ArraySpec()


def test_an_annotated_tensor_has_an_array_spec() -> None:
    assert spec_of_type(Tensor) == ArraySpec()
    flow = fl.from_range(3).map(tensor_of)
    assert str(flow.spec) == "(float64[2], int)"
    assert str(flow.batch(3).spec) == "(float64[3, 2], int64[3])"


def tensor_of(i: int) -> tuple[Tensor, Any]:
    return Tensor(np.full(2, float(i))), i


# -- padding ---------------------------------------------------------------------------------------


@given(ROWS)
def test_rows_that_stack_are_not_padded(rows: list[object]) -> None:
    assert same(pad(rows, None), stack(rows))
    assert str(spec_of_padded_batch(spec_of(rows[0]), 3, None)) == str(
        spec_of_batch(spec_of(rows[0]), 3)
    )


@st.composite
def ragged(draw: st.DrawFn) -> tuple[list[NDArray[Any]], Any]:
    """Arrays of one dtype and rank, in any memory order, and a value to pad them with."""
    dtype = draw(DTYPES)
    rank = draw(st.integers(1, 3))
    shapes = hnp.array_shapes(min_dims=rank, max_dims=rank, min_side=0, max_side=3)
    orders: list[Callable[[Any], NDArray[Any]]] = [np.asarray, np.asfortranarray, np.flip]
    order = draw(st.sampled_from(orders))
    arrays = shapes.flatmap(lambda shape: hnp.arrays(dtype, shape)).map(order)
    value = draw(hnp.arrays(dtype.newbyteorder("="), ()))[()]
    return draw(st.lists(arrays, min_size=1, max_size=4)), value


@given(ragged())
def test_arrays_are_padded_at_the_end_of_every_axis(case: tuple[list[NDArray[Any]], Any]) -> None:
    rows, value = case
    given_out: list[NDArray[Any]] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    batch = pad(rows, value, allocate)
    assert [id(array) for array in given_out] == [id(batch)]
    assert batch.shape == (len(rows), *np.max([row.shape for row in rows], axis=0))
    assert batch.dtype == rows[0].dtype
    for padded, row in zip(batch, rows, strict=True):
        inside = np.zeros(padded.shape, bool)
        inside[np.ix_(*map(range, row.shape))] = True
        assert same(padded[inside].reshape(row.shape), np.ascontiguousarray(row))
        rest = padded[~inside]
        assert same(rest, np.full(rest.shape, value, rest.dtype))
    spec = spec_of_padded_batch(without_sizes(spec_of(rows[0])), len(rows), value)
    assert meet(spec, spec_of(batch)) == spec_of(batch)


@st.composite
def ragged_lists(draw: st.DrawFn) -> tuple[list[Any], type[np.generic], int]:
    """Nested lists of one kind of number, of which one has an item, and their rank."""
    dtype = draw(NUMBERS)
    items: Generator = hnp.arrays(dtype, ()).map(lambda array: array.item())
    rank = draw(st.integers(1, 3))
    for _ in range(rank - 1):
        items = st.lists(items, max_size=3)
    rows = draw(st.lists(st.lists(items, max_size=3), min_size=1, max_size=4))
    assume(any(True for _ in numbers_in(rows)))
    return rows, dtype, rank


def numbers_in(items: Any, at: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The numbers in nested lists, each with its place."""
    for i, item in enumerate(items):
        if isinstance(item, list):
            yield from numbers_in(item, (*at, i))
        else:
            yield (*at, i), item


@given(ragged_lists())
def test_ragged_lists_are_padded(case: tuple[list[Any], type[np.generic], int]) -> None:
    rows, dtype, rank = case
    batch = pad(rows, 1)
    assert (batch.dtype, batch.ndim, len(batch)) == (dtype, rank + 1, len(rows))
    model = np.ones(batch.shape, dtype)
    for place, number in numbers_in(rows):
        model[place] = number
    assert same(batch, model)
    sizes = np.max([place for place, _ in numbers_in(rows)], axis=0) + 1
    assert (np.array(batch.shape[1:-1]) >= sizes[1:-1]).all()
    assert batch.shape[-1] == sizes[-1]
    if rank == 1:
        assert same(batch, pad([np.array(row, dtype) for row in rows], 1))
    spec = spec_of_padded_batch(without_sizes(spec_of(rows[0])), len(rows), 1)
    assert meet(spec, spec_of(batch)) == spec_of(batch)
    try:
        whole = np.array(rows, dtype)
    except ValueError:  # NumPy makes no array of it
        with pytest.raises(SpecMismatch, match=r"ragged .*padded_batch pads them"):
            stack(rows)
        with pytest.raises(SpecMismatch, match="ragged"):
            pad(rows, None)
    else:
        assert same(stack(rows), whole)


def test_lists_of_ragged_arrays_are_padded() -> None:
    rows = [[np.zeros(1), np.zeros(2)], []]
    assert pad(rows, -1).tolist() == [[[0, -1], [0, 0]], [[-1, -1], [-1, -1]]]
    assert pad([[["a"], ["b", "c"]]], 0) == [[["a"], ["b", "c"]]]  # text stays as it is


@pytest.mark.parametrize("kind", ["<U", ">U", "S"])
def test_text_arrays_are_padded_with_empty_text(kind: str) -> None:
    rows = [np.array(["a", "bc"], f"{kind}2"), np.array(["def"], f"{kind}3")]
    batch = pad(rows, 0)
    assert batch.dtype == np.dtype(f"{kind}3")
    assert batch.astype(str).tolist() == [["a", "bc"], ["def", ""]]
    fill = "none" if kind != "S" else b"none"
    assert pad(rows, fill).dtype == np.dtype(f"{kind}4")
    assert pad(rows, fill).astype(str).tolist() == [["a", "bc"], ["def", "none"]]
    flow = fl.from_items(rows).padded_batch(2)
    assert meet(flow.spec, spec_of(batch)) == spec_of(batch)


u8, f4, text = np.zeros(1, np.uint8), np.zeros(1, np.float32), np.zeros(1, "<U3")


@pytest.mark.parametrize(
    ("array", "padding", "padded"),
    [
        (u8, 255, 255),
        (u8, 3.0, 3),
        (u8, True, 1),
        (u8, np.int64(7), 7),
        (f4, 0.5, 0.5),
        (f4, -(2**24), -(2**24)),
        (f4, np.float32(0.1), np.float32(0.1)),
        (f4, -np.inf, -np.inf),
        (np.zeros(1, np.uint64), 2**64 - 1, 2**64 - 1),
        (np.zeros(1, bool), 1, True),
        (np.zeros(1, np.complex64), 1j, 1j),
        (np.zeros(1, ">i4"), 5, 5),
        (text, "abc", "abc"),
        (np.zeros(1, "S2"), b"a", b"a"),
        (np.zeros(1, "M8[s]"), np.datetime64("2020-01-01"), np.datetime64("2020-01-01")),
    ],
)
def test_padding_values_that_the_dtype_can_represent(
    array: NDArray[Any], padding: Any, padded: Any
) -> None:
    batch = pad([array, array[:0]], padding)
    assert batch.dtype == array.dtype
    assert batch[1, 0] == padded


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.complex64])
def test_nan_pads(dtype: type[np.generic]) -> None:
    assert np.isnan(pad([np.zeros(1, dtype), np.zeros(0, dtype)], float("nan"))[1, 0])
    times = pad([np.zeros(1, "m8[s]"), np.zeros(0, "m8[s]")], np.timedelta64("NaT", "s"))
    assert np.isnat(times[1, 0])


@pytest.mark.parametrize(
    ("array", "padding", "hint"),
    [
        (u8, 300, ""),
        (u8, -1, ""),
        (u8, 0.5, ""),
        (u8, float("nan"), ""),
        (u8, float("inf"), ""),
        (u8, "0", ""),
        (u8, 2**70, ""),
        (np.zeros(1, bool), 2, ""),
        (f4, 0.1, "; the nearest is np.float32(0.1)"),
        (f4, np.float64(0.1), "; the nearest is np.float32(0.1)"),
        (np.zeros(1), 2**53 + 1, "; the nearest is np.float64(9007199254740992.0)"),
        (np.zeros(1, np.float16), 1e300, ""),
        (f4, 0j, ""),
        (text, b"a", ""),
        (np.zeros(1, "M8[s]"), 1, ""),
        (np.zeros(1, "M8[Y]"), np.datetime64("2020-05-05"), ""),
    ],
)
def test_padding_values_that_the_dtype_cannot_represent(
    array: NDArray[Any], padding: Any, hint: str
) -> None:
    said = f"element: padding must be a value that {array.dtype} has, got {padding!r}{hint}"
    rows: list[list[NDArray[Any]]] = [[array, array[:0]], [array, array]]
    for some in rows:  # padded or not: an error does not depend on the sizes
        with pytest.raises(SpecMismatch) as caught:
            pad(some, padding)
        assert str(caught.value) == said
    with pytest.raises(SpecMismatch) as caught:
        spec_of_padded_batch(spec_of(array), 2, padding)
    assert str(caught.value) == said


def test_arrays_without_axes_are_not_padded() -> None:
    rows = [(np.uint8(1), 2, np.zeros((), np.uint8)), (np.uint8(3), 4, np.zeros((), np.uint8))]
    assert same(pad(rows, 0.5), stack(rows))
    spec_of_padded_batch(spec_of(rows[0]), 2, 0.5)


@pytest.mark.parametrize(
    ("rows", "padding", "said"),
    [
        ([u8, f4], 0, "element: row 0 of the batch is uint8[1], row 1 is float32[1]"),
        ([u8, u8[:0], f4], 0, "row 0 of the batch is uint8[1], row 2 is float32[1]"),
        ([u8, np.uint8(3)], 0, "row 0 of the batch is uint8[1], row 1 is uint8[]"),
        ([u8, u8[:, None]], 0, "row 1 is uint8[1, 1]; arrays of equal rank are padded"),
        ([u8, u8[:0]], None, "row 0 of the batch is uint8[1], row 1 is uint8[0]"),
        ([(u8, 1), (u8, 1.5)], 0, "element.1: row 0 of the batch is int, row 1 is float"),
        ([(u8,), (u8, u8)], 0, "row 1 is (uint8[1], uint8[1])"),
        ([(u8, 1)], (0,), "element: 2 components, and padding has 1"),
        ([(u8, 1)], (0, (0,)), "element.1: a single component, and padding has several: (0,)"),
        ([u8], {"a": 0}, "element: a single component, and padding has several: {'a': 0}"),
        ([{"a": u8}], {"b": 0}, "element: components a, and padding names b"),
        ([{"a": (u8, u8)}], {"a": (0, 300)}, "element.a.1: padding must be a value that uint8"),
        ([[[1], [[2]]]] * 2, 0, "row 0 of the batch is a list whose items differ in rank"),
        ([[np.zeros(1), np.zeros((1, 1))]] * 2, 0, "is a list whose items differ in rank"),
        ([[1], [[2]]], 0, "row 0 of the batch is int64[1], row 1 is int64[1, 1]; arrays of equal"),
        ([[1], [2, 3]], 0.5, "element: padding must be a value that int64 has, got 0.5"),
        ([["a"], ["b"]], (0, 1), "element: a single component, and padding has several: (0, 1)"),
        ([u8, [[1], [2, 3]]], 0, "row 0 of the batch is uint8[1], row 1 is list[list[int]]"),
        ([], 0, "element: there are no rows to stack"),
        ([{1}], 0, "element: set does not stack"),
        ([np.array([{}])], 0, "an array of Python objects does not stack"),
        ([np.ma.masked_array([1], [True])], 0, "MaskedArray does not stack"),
    ],
)
def test_padding_refuses_rows_that_do_not_fit(rows: list[Any], padding: Any, said: str) -> None:
    with pytest.raises(SpecMismatch) as caught:
        pad(rows, padding)
    assert said in str(caught.value)
    if len(rows) == 1 and not isinstance(rows[0], np.ma.MaskedArray):
        with pytest.raises(SpecMismatch) as known:
            spec_of_padded_batch(spec_of(rows[0]), 2, padding)
        assert str(known.value) == str(caught.value)


# -- taking apart ----------------------------------------------------------------------------------


def plain(row: Any) -> Any:
    """A row as ``unstack`` yields it: numbers as NumPy scalars, and no records."""
    parts = components(row)
    if parts is None:
        if is_text(row):
            return row
        fixed: dict[type, type[np.generic]] = {
            bool: np.bool_,
            int: np.int64,
            float: np.float64,
            complex: np.complex128,
        }
        return np.asarray(row, fixed.get(type(row)))[()]
    values = [plain(part) for _, part in parts]
    if isinstance(row, dict):
        return dict(zip(row, values, strict=True))
    if isinstance(row, (Spot, Packed)):
        return (SpotBatch if isinstance(row, Spot) else PackedBatch)(*values)
    return Pair(*values) if isinstance(row, Pair) else tuple(values)


@given(ROWS | NATURAL)
def test_unstack_is_the_inverse_of_stack(rows: list[object]) -> None:
    batch = stack(rows)
    got = list(unstack(batch))
    assert len(got) == len(rows)
    for ours, row in zip(got, rows, strict=True):
        assert same(ours, plain(row))
        met = leaf_specs(meet(spec_of_row(spec_of(batch)), spec_of(ours)))
        assert [spec for _, spec in met] == [spec for _, spec in leaf_specs(spec_of(ours))]
        for leaf, column in zip(leaves(ours), leaves(batch), strict=True):
            if isinstance(leaf, np.ndarray) and leaf.size:
                assert np.shares_memory(leaf, np.asarray(column))


def test_lists_and_empty_tuples_are_unstacked() -> None:
    batch = {"a": ["x", "y"], "b": (), "c": [[1], [2]]}
    assert list(unstack(batch)) == [{"a": "x", "b": (), "c": [1]}, {"a": "y", "b": (), "c": [2]}]
    assert list(unstack([])) == []
    assert list(unstack((np.zeros((0, 2)), []))) == []


def test_the_spec_of_a_row_of_a_batch() -> None:
    known = ArraySpec(np.dtype("u1"), (None, 3))
    assert spec_of_row(known) == ArraySpec(np.dtype("u1"), (3,))
    assert spec_of_row(ArraySpec()) == ArraySpec()
    big = np.dtype(">i2")
    assert spec_of_row(ArraySpec(big, (3, 2))) == ArraySpec(big, (2,))
    assert spec_of_row(ArraySpec(big, (3,))) == ArraySpec(np.dtype("i2"), ())
    assert spec_of_row(ArraySpec(big)) == ArraySpec()
    assert spec_of_row(spec_of([1, 2])) == ValueSpec(int)
    assert spec_of_row(spec_of([])) == spec_of_row(UNKNOWN) == UNKNOWN
    assert spec_of_row(spec_of(np.array([{}, "a"]))) == UNKNOWN
    pair = spec_of(Pair(np.zeros(2), np.zeros((2, 3))))
    assert str(spec_of_row(pair)) == "Pair(x: float64[], y: float64[3])"
    assert str(spec_of_row(spec_of({"x": np.zeros(2)}))) == "{x: float64[]}"


def test_sizes_are_unknown_unless_they_are_declared() -> None:
    seen = spec_of({"a": np.zeros((2, 3)), "b": 1})
    assert str(without_sizes(seen)) == "{a: float64[?, ?], b: int}"
    fields = (("a", ArraySpec(None, (None, 3))), ("b", UNKNOWN))
    assert str(with_sizes(seen, StructSpec(dict, fields))) == "{a: float64[?, 3], b: int}"
    assert str(with_sizes(spec_of(np.zeros((2, 3))), ArraySpec())) == "float64[?, ?]"


class TestLists:
    def test_lists_of_dicts_is_a_dict_of_lists(self) -> None:
        flow = fl.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
        assert flow.batch(2, collate=fl.lists).collect() == [{"a": [1, 2], "b": ["x", "y"]}]

    @pytest.mark.parametrize("rows", [["ab", "cd"], [1, 2], [np.zeros(2)], [{1}, {2}], [[1], [2]]])
    def test_lists_refuses_elements_without_components(self, rows: list[Any]) -> None:
        with pytest.raises(SpecMismatch, match=r"^lists: elements must be tuples or dicts, got "):
            lists(rows)

    def test_lists_refuses_rows_that_differ(self) -> None:
        unequal: list[list[Any]] = [
            [(1, 2), (3,)],
            [{"a": 1}, {"b": 1}],
            [(1, 2), {"a": 1}],
        ]
        for rows in unequal:
            with pytest.raises(SpecMismatch, match=r"row 0 of the batch is .*, row 1 is "):
                lists(rows)

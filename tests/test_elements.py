"""Elements: stacking casts nothing, and specs say beforehand what stacking gives."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Protocol, TypedDict, TypeVar

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from flowdsl.elements import (
    UNKNOWN,
    ArraySpec,
    Record,
    Shape,
    Spec,
    StructSpec,
    ValueSpec,
    assemble,
    batch_type,
    c0,
    c1,
    c2,
    c3,
    components,
    form_of,
    is_settled,
    join,
    leaf_specs,
    leaves,
    meet,
    spec_of,
    spec_of_batch,
    spec_of_type,
    stack,
)
from flowdsl.errors import SpecMismatch

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")
D = TypeVar("D", bound=np.generic)


class Pair(NamedTuple):
    x: object
    y: object


@attrs.frozen
class PointBatch:
    x: object
    _y: object


@attrs.frozen
class Point(Record[PointBatch]):
    x: object
    _y: object


class Derived(Point, Generic[T]):
    """A record below a record, generic for a reason of its own."""


@attrs.frozen
class Unnamed(Record):  # type: ignore[type-arg] # the mistake under test
    x: int


FORMS: dict[type, Callable[[Any, Any], object]] = {
    tuple: lambda x, y: (x, y),
    dict: lambda x, y: {"x": x, "y": y},
    Pair: Pair,
    Point: Point,
}

# -- strategies ------------------------------------------------------------------------------------

Generator = st.SearchStrategy[object]
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(max_period="s", endianness="="),
)
INT64 = st.integers(-(2**63), 2**63 - 1)


def arrays() -> st.SearchStrategy[Generator]:
    """Strategies for arrays of one dtype and shape, in any memory order."""

    def of(dtype: np.dtype[Any], shape: tuple[int, ...], order: Callable[..., object]) -> Generator:
        return hnp.arrays(dtype, shape).map(order)

    orders = st.sampled_from([np.asarray, np.asfortranarray, reversed_view])
    return st.builds(of, DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=3), orders)


def reversed_view(array: NDArray[Any]) -> NDArray[Any]:
    return array[::-1] if array.ndim else array


def scalars() -> st.SearchStrategy[Generator]:
    native = DTYPES.map(lambda dtype: dtype.newbyteorder("="))
    return native.map(lambda dtype: hnp.arrays(dtype, ()).map(lambda array: array[()]))


def numbers() -> st.SearchStrategy[Generator]:
    return st.sampled_from([st.booleans(), INT64, st.floats()])


def structs(parts: st.SearchStrategy[Generator]) -> st.SearchStrategy[Generator]:
    def of(form: type, x: Generator, y: Generator) -> Generator:
        return st.builds(FORMS[form], x, y)

    return st.builds(of, st.sampled_from(sorted(FORMS, key=str)), parts, parts)


ALIKE = st.recursive(st.one_of(arrays(), scalars(), numbers()), structs, max_leaves=4)
"""Strategies for elements of one form, dtype and shape each."""

ROWS = ALIKE.flatmap(lambda element: st.lists(element, min_size=1, max_size=4))
"""Rows that stack."""

ELEMENTS = ALIKE.flatmap(lambda element: element)

DIMS = st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2).map(tuple)
LEAF_SPECS = st.one_of(
    st.builds(ArraySpec, st.none() | st.sampled_from([np.dtype("u1"), np.dtype("f8")]), DIMS),
    st.sampled_from([ValueSpec(int), ValueSpec(bool), ValueSpec(str), UNKNOWN]),
)


def struct_specs(parts: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    def of(form: type, x: Spec, y: Spec) -> Spec:
        names = ("0", "1") if form is tuple else ("x", "y")
        return StructSpec(form, tuple(zip(names, (x, y), strict=True)))

    return st.builds(of, st.sampled_from([tuple, dict, Pair]), parts, parts)


SPECS: st.SearchStrategy[Spec] = st.recursive(LEAF_SPECS, struct_specs, max_leaves=3)


def same(a: object, b: object) -> bool:
    """Equal in form, dtype, shape and value; NaN equals itself."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        nan = a.dtype.kind in "fcmM"
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=nan)
    ours, theirs = components(a), components(b)
    if type(a) is not type(b) or ours is None or theirs is None:
        return type(a) is type(b) and (a == b or (a != a and b != b))
    return [n for n, _ in ours] == [n for n, _ in theirs] and all(
        same(x, y) for (_, x), (_, y) in zip(ours, theirs, strict=True)
    )


# -- stack -----------------------------------------------------------------------------------------


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


# -- specs -----------------------------------------------------------------------------------------


@given(ELEMENTS)
def test_leaves_and_their_specs_agree(element: object) -> None:
    named = leaf_specs(spec_of(element))
    assert [spec for _, spec in named] == [spec_of(leaf) for leaf in leaves(element)]
    for (name, _), leaf in zip(named, leaves(element), strict=True):
        part = element
        for step in name.split(".") if components(element) is not None else ():
            part = dict(components(part) or ())[step]
        assert part is leaf


@given(ELEMENTS)
def test_assemble_is_the_inverse_of_components(element: object) -> None:
    parts = components(element)
    if parts is not None:
        assert same(assemble(form_of(element), dict(parts)), element)


@given(ELEMENTS)
def test_an_element_settles_its_spec(element: object) -> None:
    assert is_settled(spec_of(element))
    assert not is_settled(StructSpec(tuple, (("0", spec_of(element)), ("1", UNKNOWN))))


@pytest.mark.parametrize("unsettled", [UNKNOWN, ArraySpec(), ArraySpec(np.dtype("u1"))])
def test_what_is_not_settled(unsettled: Spec) -> None:
    assert not is_settled(unsettled)


@given(SPECS)
def test_meet_is_idempotent_and_unknown_is_neutral(a: Spec) -> None:
    assert meet(a, a) == a
    assert meet(a, UNKNOWN) == a
    assert meet(UNKNOWN, a) == a


@given(SPECS, SPECS)
def test_meet_commutes(a: Spec, b: Spec) -> None:
    assert met(a, b) == met(b, a)


@given(SPECS, SPECS)
def test_what_met_contradicts_neither(a: Spec, b: Spec) -> None:
    both = met(a, b)
    if both is not None:
        assert meet(a, both) == both
        assert meet(both, b) == both


def met(a: Spec, b: Spec) -> Spec | None:
    try:
        return meet(a, b)
    except SpecMismatch:
        return None


@given(ELEMENTS, ELEMENTS)
def test_meet_never_takes_one_dtype_or_shape_for_another(a: object, b: object) -> None:
    mine, other = spec_of(a), spec_of(b)
    assume(mine != other)
    both = met(mine, other)
    if both is None:
        return
    triples = zip(leaf_specs(both), leaf_specs(mine), leaf_specs(other), strict=True)
    for (_, leaf), (_, x), (_, y) in triples:  # the same, or one a subclass: a bool is an int
        assert leaf in (x, y)
        assert x == y or ValueSpec in (type(x), type(y))


@pytest.mark.parametrize(
    ("declared", "seen", "said"),
    [
        (ArraySpec(np.dtype("u1")), ArraySpec(np.dtype("f4"), (2,)), "uint8[...], got float32[2]"),
        (ArraySpec(shape=(2, None)), ArraySpec(shape=(3, 4)), "?[2, ?], got ?[3, 4]"),
        (ArraySpec(shape=(2,)), ArraySpec(shape=(2, 1)), "?[2], got ?[2, 1]"),
        (ValueSpec(int), ValueSpec(str), "int, got str"),
        (ValueSpec(str), ArraySpec(), "str, got ?[...]"),
        (spec_of((1, 2)), spec_of((1,)), "(int, int), got (int)"),
        (spec_of((1, 2)), spec_of({"0": 1, "1": 2}), "(int, int), got {0: int, 1: int}"),
        (spec_of({"a": 1}), spec_of({"b": 1}), "{a: int}, got {b: int}"),
        (spec_of(Pair(1, 2)), spec_of(Point(1, 2)), "Pair(x: int, y: int), got Point("),
    ],
)
def test_a_contradiction_names_both(declared: Spec, seen: Spec, said: str) -> None:
    with pytest.raises(SpecMismatch) as caught:
        meet(declared, seen, "map: element 0")
    assert str(caught.value).startswith(f"map: element 0: declared {said}")


def test_a_contradiction_inside_names_the_component() -> None:
    with pytest.raises(SpecMismatch, match=r"^row\.y\.0: declared int, got str$"):
        meet(spec_of(Pair(1, (2,))), spec_of(Pair(1, ("a",))), "row")


def test_a_tuple_takes_the_names_of_what_it_meets() -> None:
    plain, named = spec_of((1, UNKNOWN)), spec_of(Pair(1, 2.0))
    assert meet(spec_of((1, 2.0)), named) == named
    assert meet(named, spec_of((1, 2.0))) == named
    assert plain != named


@pytest.mark.parametrize(("declared", "element"), [(float, np.float64(1)), (int, True)])
def test_a_subclass_is_what_its_base_declares(declared: type, element: object) -> None:
    assert meet(ValueSpec(declared), spec_of(element)) == spec_of(element)
    assert meet(spec_of(element), ValueSpec(declared)) == spec_of(element)


@given(SPECS)
def test_join_is_idempotent_and_unknown_absorbs(a: Spec) -> None:
    assert join(a, a) == a
    assert join(a, UNKNOWN) == UNKNOWN == join(UNKNOWN, a)


@given(SPECS, SPECS, SPECS)
def test_join_commutes_and_associates(a: Spec, b: Spec, c: Spec) -> None:
    assert join(a, b) == join(b, a)
    assert join(a, join(b, c)) == join(join(a, b), c)


@given(SPECS, SPECS)
def test_a_join_describes_both(a: Spec, b: Spec) -> None:
    assert meet(join(a, b), a) == a == meet(a, join(a, b))
    assert meet(join(a, b), b) == b


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), "float64[2, ?]"),
        (np.zeros(2), np.zeros((2, 4)), "float64[...]"),
        (np.zeros(2, "u1"), np.zeros(2), "?[2]"),
        ((1, "a"), (1, 2.0), "(int, ?)"),
        ((1, 2), (1,), "?"),
        (Pair(1, 2), (1, 2), "?"),
    ],
)
def test_join_keeps_what_is_shared(a: object, b: object, joined: str) -> None:
    assert str(join(spec_of(a), spec_of(b))) == joined


@pytest.mark.parametrize(
    "unstackable",
    [ValueSpec(str), ArraySpec(np.dtype(object), (2,)), spec_of({"a": (1, "b")})],
    ids=str,
)
def test_the_spec_of_a_batch_refuses_what_stack_would(unstackable: Spec) -> None:
    with pytest.raises(SpecMismatch, match="does not stack"):
        spec_of_batch(unstackable, 2)


def test_an_unknown_dtype_is_not_float64() -> None:
    # NumPy says that None equals it.
    unknown, known = ArraySpec(None, (2,)), ArraySpec(np.dtype(np.float64), (2,))
    assert unknown != known
    assert join(known, unknown) == join(unknown, known) == unknown
    assert meet(known, unknown) == meet(unknown, known) == known
    with pytest.raises(SpecMismatch):
        meet(known, ArraySpec(np.dtype(np.int8), (2,)))
    with pytest.raises(SpecMismatch):
        meet(ArraySpec(np.dtype(np.int8), (2,)), known)


def test_no_side_is_not_any_side() -> None:
    assert str(ArraySpec(np.dtype("u1"), (0, None))) == "uint8[0, ?]"


def test_the_spec_of_a_batch_of_unknown_size() -> None:
    image = ArraySpec(np.dtype("u1"), (None, 3))
    assert str(spec_of_batch(image, None)) == "uint8[?, ?, 3]"
    assert spec_of_batch(UNKNOWN, 4) == UNKNOWN
    assert spec_of_batch(ArraySpec(np.dtype("u1")), 4) == ArraySpec(np.dtype("u1"))


# -- annotations -----------------------------------------------------------------------------------


class Named(NamedTuple):
    image: Annotated[NDArray[np.uint8], Shape(None, None, 3)]
    label: np.int64


class OfAny(NamedTuple, Generic[T]):
    value: T
    weight: float


Untyped = namedtuple("Untyped", ["x", "y"])  # noqa: PYI024 # what older code has


@attrs.frozen
class LabeledBatch:
    label: NDArray[np.int64]


@attrs.frozen
class Labeled(Record[LabeledBatch]):
    label: np.int64
    name: str


class Typed(TypedDict):
    image: NDArray[np.float32]
    boxes: tuple[np.int32, bool]


class Late(NamedTuple):
    price: Decimal  # known to a checker only
    pieces: int


class Readable(Protocol):
    def read(self) -> bytes: ...


Image = TypeAliasType("Image", NDArray[np.uint8])
Lazy = TypeAliasType("Lazy", np.ndarray[tuple[Any, ...], np.dtype[D]], type_params=(D,))


@pytest.mark.parametrize(
    ("annotation", "spec"),
    [
        (Named, "Named(image: uint8[?, ?, 3], label: int64[])"),
        (OfAny[int], "OfAny(value: ?, weight: float)"),
        (Untyped, "Untyped(x: ?, y: ?)"),
        (Labeled, "Labeled(label: int64[], name: str)"),
        (Typed, "{image: float32[...], boxes: (int32[], bool)}"),
        (Late, "Late(price: ?, pieces: ?)"),
        (tuple[int, NDArray[np.float16]], "(int, float16[...])"),
        (tuple[()], "()"),
        (Annotated[NDArray[np.uint8], "pixels", Shape(28, 28)], "uint8[28, 28]"),
        (Annotated[int, Shape(3)], "int"),
        (np.float32, "float32[]"),
        (np.bool_, "bool[]"),
        (np.ndarray, "?[...]"),
        (NDArray[Any], "?[...]"),
        (NDArray[np.floating], "?[...]"),
        (NDArray[np.floating[Any]], "?[...]"),
        (NDArray[np.str_], "?[...]"),
        (NDArray[np.datetime64], "?[...]"),
        (np.ndarray[tuple[int, int], np.dtype[np.int8]], "int8[...]"),
        (np.ndarray[Any, Any], "?[...]"),
        (np.integer, "?[]"),
        (Image, "uint8[...]"),
        (Lazy[np.uint16], "uint16[...]"),
        (int, "int"),
        (str, "str"),
        (type(None), "NoneType"),
        (object, "?"),
        (Any, "?"),
        (tuple, "?"),
        (tuple[int, ...], "?"),
        (dict, "?"),
        (dict[str, int], "?"),
        (int | None, "?"),
        (Sequence[int], "?"),
        (Mapping, "?"),
        (Readable, "?"),
        (T, "?"),
        (Callable[[int], int], "?"),
    ],
)
def test_an_annotation_says_what_elements_look_like(annotation: Any, spec: str) -> None:
    assert str(spec_of_type(annotation)) == spec


@pytest.mark.parametrize(
    ("annotation", "element"),
    [
        (Named, Named(np.zeros((4, 5, 3), np.uint8), np.int64(1))),
        (Labeled, Labeled(np.int64(1), "a")),
        (Typed, {"image": np.zeros(2, np.float32), "boxes": (np.int32(1), True)}),
        (Untyped, Untyped(1, "a")),
        (NDArray[np.str_], np.array(["abc"])),
        (NDArray[np.datetime64], np.array(["2020-01-01"], "M8[D]")),
        (tuple, (1, 2)),
        (dict, {"a": 1}),
        (Any, 1),
        (Mapping, {"a": 1}),
        (np.integer, np.int8(1)),
    ],
)
def test_an_annotation_meets_its_elements(annotation: Any, element: object) -> None:
    assert meet(spec_of_type(annotation), spec_of(element)) == spec_of(element)


# -- records and selectors -------------------------------------------------------------------------


def test_a_record_names_its_batch_type() -> None:
    assert batch_type(Point) is PointBatch
    assert batch_type(Derived) is PointBatch


def test_a_selector_picks_by_position() -> None:
    picked: list[Callable[..., object]] = [c0, c1, c2, c3]
    assert [pick(("a", "b", "c", "d")) for pick in picked] == ["a", "b", "c", "d"]

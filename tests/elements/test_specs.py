"""Specs describe elements in advance."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypedDict,
    TypeVar,
)

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

import flowdsl as fl
from flowdsl.elements.batch_specs import spec_of_batch
from flowdsl.elements.declared_specs import Shape, spec_of_type
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    ListSpec,
    Spec,
    StructSpec,
    ValueSpec,
    is_known,
    join,
    leaf_specs,
    spec_of,
    varying_axes,
    without_axes,
)
from flowdsl.elements.structure import Record
from flowdsl.errors import SpecMismatch
from tests.rows import ELEMENTS, SPECS, Pair, Point

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")
D = TypeVar("D", bound=np.generic)


@given(ELEMENTS)
def test_the_spec_of_an_element_is_known(element: object) -> None:
    assert is_known(spec_of(element))
    assert not is_known(StructSpec(tuple, (("0", spec_of(element)), ("1", UNKNOWN))))


@pytest.mark.parametrize("incomplete", [UNKNOWN, ArraySpec(), ArraySpec(np.dtype("u1"))])
def test_specs_with_unknown_parts_are_not_known(incomplete: Spec) -> None:
    assert not is_known(incomplete)


@given(SPECS)
def test_meet_is_idempotent_and_unknown_is_neutral(a: Spec) -> None:
    assert meet(a, a) == a
    assert meet(a, UNKNOWN) == a
    assert meet(UNKNOWN, a) == a


@given(SPECS, SPECS)
def test_meet_commutes(a: Spec, b: Spec) -> None:
    assert met(a, b) == met(b, a)


@given(SPECS, SPECS)
def test_a_meet_contradicts_neither_spec(a: Spec, b: Spec) -> None:
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
def test_meet_refuses_different_dtypes_or_shapes(a: object, b: object) -> None:
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
def test_a_contradiction_names_both_specs(declared: Spec, seen: Spec, said: str) -> None:
    with pytest.raises(SpecMismatch) as caught:
        meet(declared, seen, "map: element 0")
    assert str(caught.value).startswith(f"map: element 0: declared {said}")


@pytest.mark.parametrize("kind", [bool, int])
def test_a_number_of_numpy_that_is_declared_as_a_number_of_python_is_an_error_with_advice(
    kind: type,
) -> None:
    stored: np.dtype[Any] = np.dtype(kind)
    with pytest.raises(SpecMismatch, match=f"declared as np.{stored.type.__name__}$"):
        meet(ValueSpec(kind), ArraySpec(stored, ()), "label")


def test_a_nested_contradiction_names_the_component() -> None:
    with pytest.raises(SpecMismatch, match=r"^row\.y\.0: declared int, got str$"):
        meet(spec_of(Pair(1, (2,))), spec_of(Pair(1, ("a",))), "row")


def test_a_plain_tuple_takes_the_names_of_a_named_tuple() -> None:
    plain, named = spec_of((1, UNKNOWN)), spec_of(Pair(1, 2.0))
    assert meet(spec_of((1, 2.0)), named) == named
    assert meet(named, spec_of((1, 2.0))) == named
    assert plain != named


@pytest.mark.parametrize(("declared", "element"), [(float, np.float64(1)), (int, True)])
def test_a_subclass_meets_its_declared_base(declared: type, element: object) -> None:
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
def test_a_join_describes_both_specs(a: Spec, b: Spec) -> None:
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
def test_join_keeps_shared_parts(a: object, b: object, joined: str) -> None:
    assert str(join(spec_of(a), spec_of(b))) == joined


@pytest.mark.parametrize(
    "unstackable",
    [ValueSpec(set), ArraySpec(np.dtype(object), (2,)), spec_of({"a": (1, {2})})],
    ids=str,
)
def test_the_spec_of_a_batch_refuses_the_rows_that_stack_refuses(unstackable: Spec) -> None:
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


def test_a_size_of_zero_is_not_an_unknown_size() -> None:
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
        (OfAny[int], "OfAny(value: int, weight: float)"),
        (OfAny, "OfAny(value: ?, weight: float)"),
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
        (Literal["a", "b"], "str"),
        (Literal[1, "b"], "?"),
        (Sequence[int], "?"),
        (Mapping, "?"),
        (Readable, "?"),
        (T, "?"),
        (Callable[[int], int], "?"),
    ],
)
def test_an_annotation_declares_the_spec_of_elements(annotation: Any, spec: str) -> None:
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
def test_the_spec_of_an_annotation_meets_its_elements(annotation: Any, element: object) -> None:
    assert meet(spec_of_type(annotation), spec_of(element)) == spec_of(element)


def test_lists_and_arrays_vary_in_length_alike() -> None:
    batches = ListSpec(ValueSpec(str), None)
    axes = varying_axes(batches, spec_of(["a", "b", "c"]))
    assert axes == {(0, 3)}
    assert without_axes(spec_of((["x", "y", "z"], ["w"])), axes) == StructSpec(
        tuple, (("0", batches), ("1", ListSpec(ValueSpec(str), 1)))
    )


def test_sizes_that_vary_in_a_list_of_lists_vary_in_the_result() -> None:
    texts = fl.from_items([(np.int32(i), f"row {i}", np.zeros(2)) for i in range(4)])
    uneven = texts.batch(3).batch_by_shape(1, fl.c0)  # of three texts, and of one
    assert [[len(one) for one in x[1]] for x in uneven] == [[3], [1]]
    for flow in (uneven.map_component(lambda x: x, 0), uneven.map(lambda x: x)):
        for element in flow:
            meet(flow.spec, spec_of(element))
    counted = uneven.map(lambda x: np.array(x[1], "U6"))
    assert counted.spec == ArraySpec(np.dtype("U6"), (None, None))


def test_axes_of_arrays_in_lists_follow_the_axes_of_the_lists() -> None:
    varying = ListSpec(ArraySpec(np.dtype("u1"), (None, 3)))
    axes = varying_axes(varying, spec_of([np.zeros((5, 3), "u1")] * 2))
    assert axes == {(0, 2), (1, 5)}
    assert without_axes(spec_of(np.zeros((2, 5, 3))), axes) == ArraySpec(
        np.dtype(float), (None, None, 3)
    )
    assert without_axes(spec_of([np.zeros((5, 2))] * 2), axes) == ListSpec(
        ArraySpec(np.dtype(float), (None, 2)), None
    )


@pytest.mark.parametrize("rows", [UNKNOWN, StructSpec(tuple, (("0", ArraySpec()),))])
def test_every_size_of_an_unknown_spec_may_vary(rows: Spec) -> None:
    axes = varying_axes(rows, spec_of((np.zeros((2, 3)),)))
    assert axes == {(0, 2), (1, 3)}
    assert without_axes(spec_of(np.zeros((2, 4, 3))), axes) == ArraySpec(
        np.dtype(float), (None, 4, 3)
    )

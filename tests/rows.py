"""Random rows that stack, and random specs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import attrs
import msgspec
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from flowdsl.elements.specs import UNKNOWN, ArraySpec, ListSpec, Spec, StructSpec, ValueSpec
from flowdsl.elements.structure import (
    Record,
    assemble,
    components,
    form_of,
)

if TYPE_CHECKING:
    pass

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
    """A generic record within a record."""


@attrs.frozen
class Unnamed(Record):  # type: ignore[type-arg] # the mistake under test
    x: int


@dataclass(frozen=True)
class Spot:
    x: object
    y: object


class Packed(msgspec.Struct, frozen=True):
    x: object
    y: object


FORMS: dict[type, Callable[[Any, Any], object]] = {
    tuple: lambda x, y: (x, y),
    dict: lambda x, y: {"x": x, "y": y},
    Pair: Pair,
    Point: Point,
    Spot: Spot,
    Packed: Packed,
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
    return st.sampled_from([st.booleans(), INT64, st.floats(), st.complex_numbers()])


def structs(parts: st.SearchStrategy[Generator]) -> st.SearchStrategy[Generator]:
    def of(form: type, x: Generator, y: Generator) -> Generator:
        return st.builds(FORMS[form], x, y)

    return st.builds(of, st.sampled_from(sorted(FORMS, key=str)), parts, parts)


ALIKE = st.recursive(st.one_of(arrays(), scalars(), numbers()), structs, max_leaves=4)
"""Strategies for elements of one form, dtype and shape each."""

ROWS = ALIKE.flatmap(lambda element: st.lists(element, min_size=1, max_size=4))
"""Rows that stack."""

ELEMENTS = ALIKE.flatmap(lambda element: element)

NUMBERS = st.sampled_from([np.bool_, np.int64, np.float64, np.complex128])
"""The dtypes of arrays of Python numbers."""


def lists_of_numbers() -> st.SearchStrategy[Generator]:
    """Strategies for lists of one kind of number and one shape."""

    def of(dtype: type[np.generic], shape: tuple[int, ...]) -> Generator:
        return hnp.arrays(dtype, shape).map(lambda array: array.tolist())

    return st.builds(of, NUMBERS, hnp.array_shapes(max_dims=3, max_side=3))


def texts() -> st.SearchStrategy[Generator]:
    """Strategies for text, and for lists of text of any length."""
    kinds: list[st.SearchStrategy[str] | st.SearchStrategy[bytes]] = [st.text(), st.binary()]
    whole = [st.just(kind) for kind in kinds]
    listed = [st.just(st.lists(kind, min_size=1, max_size=3)) for kind in kinds]
    return st.one_of(*whole, *listed)


NATURAL = st.recursive(
    st.one_of(arrays(), numbers(), lists_of_numbers(), texts()), structs, max_leaves=4
).flatmap(lambda element: st.lists(element, min_size=1, max_size=4))
"""Rows that stack, with lists and text in them."""


def with_arrays(row: Any) -> Any:
    """Return the row with arrays in place of its lists of numbers."""
    parts = components(row)
    if parts is not None:
        return assemble(form_of(row), {name: with_arrays(part) for name, part in parts})
    return row if not isinstance(row, list) or is_text(row) else np.array(row)


def is_text(value: Any) -> bool:
    """Return True for text or a list of text."""
    return all(isinstance(x, (str, bytes)) for x in (value if isinstance(value, list) else [value]))


DIMS = st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2).map(tuple)
LEAF_SPECS = st.one_of(
    st.builds(ArraySpec, st.none() | st.sampled_from([np.dtype("u1"), np.dtype("f8")]), DIMS),
    st.builds(ArraySpec, st.sampled_from([np.dtype("U"), np.dtype("U2"), np.dtype("U3")]), DIMS),
    st.sampled_from([ValueSpec(int), ValueSpec(bool), ValueSpec(str), UNKNOWN]),
)


def struct_specs(parts: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    def of(form: type, x: Spec, y: Spec) -> Spec:
        names = ("0", "1") if form is tuple else ("x", "y")
        return StructSpec(form, tuple(zip(names, (x, y), strict=True)))

    listed = st.builds(ListSpec, parts, st.none() | st.integers(0, 2))
    return st.builds(of, st.sampled_from([tuple, dict, Pair]), parts, parts) | listed


SPECS: st.SearchStrategy[Spec] = st.recursive(LEAF_SPECS, struct_specs, max_leaves=3)

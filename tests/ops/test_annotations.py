"""If a function's annotation does not settle the spec, the first element does."""

from __future__ import annotations

import abc
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from numbers import Integral, Number, Real
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Protocol,
    Required,
    SupportsFloat,
    TypedDict,
    TypeVar,
)

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import flowdsl as fl
from flowdsl.elements.specs import spec_of
from flowdsl.testing.elements import same

T = TypeVar("T")
N = TypeVar("N", bound=Number)


@dataclasses.dataclass(frozen=True)
class Shape:
    x: int


@dataclasses.dataclass(frozen=True)
class Circle(Shape):
    radius: float


class Base:
    pass


class Pair(Base, tuple[int, int]):
    pass


class Marked(abc.ABC):  # noqa: B024  # a class that others are registered with
    pass


Marked.register(int)


class Sized(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclasses.dataclass(frozen=True)
class Box(Generic[T]):
    content: T


class Measured(NamedTuple):
    value: Number
    image: NDArray[np.number[Any]]


class Options(TypedDict, total=False):
    x: int
    y: int


class Partly(TypedDict):
    x: Required[int]
    y: NotRequired[int]


def any_number(i: int) -> Any:
    return i


def array(i: int) -> Any:
    return np.full(2, i, np.float32)


UserId = NewType("UserId", int)


def named(case: Any) -> str:
    """A name that is the same in each process: a function's repr has its address."""
    return str(getattr(case, "__name__", case))[:40]


CASES: list[tuple[Any, Callable[[int], Any]]] = [
    (Number, lambda i: i),
    (Real, float),
    (Integral, np.int32),
    (tuple[Number, Number], lambda i: (i, 2.0)),
    (list[Number], lambda i: [i, i]),
    (Measured, lambda i: Measured(any_number(i), array(i))),
    (Shape, lambda i: Circle(i, 1.0)),
    (Base, lambda i: Pair((i, i))),
    (Marked, lambda i: i),
    (Sized, array),
    (SupportsFloat, float),
    (Hashable, lambda i: i),
    (Box[int], Box),
    (T, lambda i: i),
    (N, lambda i: i),
    (Any, array),
    (object, array),
    (int | float, float),
    (int | None, lambda i: i),
    (Literal[0, 1, 2, 3], lambda i: i),
    (UserId, lambda i: i),
    (Annotated[Number, "of bytes"], lambda i: i),
    (Final[int], lambda i: i),
    (np.generic, np.int64),
    (np.floating, np.float32),
    (np.memmap, array),
    (ArrayLike, array),
    (Sequence[float], lambda i: [1.0, 2.0]),
    (Collection[int], lambda i: [1, 2]),
    (Mapping[str, int], lambda i: {"a": i}),
    (dict[str, int], lambda i: {"a": i}),
    (OrderedDict, lambda i: OrderedDict(a=i)),
    (Options, lambda i: {"x": i}),
    (Partly, lambda i: {"x": i}),
    (tuple[int, ...], lambda i: (i, i)),
]


@pytest.mark.parametrize(("annotation", "make"), CASES, ids=lambda case: named(case))
def test_annotated_and_plain_functions_stack_alike(
    annotation: Any, make: Callable[[int], Any]
) -> None:
    def row(i: int) -> Any:
        return make(i)

    row.__annotations__["return"] = annotation
    rows = fl.from_range(4)
    for annotated, plain in (
        (rows.map(row), rows.map(lambda i: make(i))),
        (rows.filter_map(row), rows.filter_map(lambda i: make(i))),
    ):
        assert annotated.spec == plain.spec == spec_of(make(0))
        assert same(annotated.batch(2).collect(), plain.batch(2).collect())


def test_the_spec_of_a_jax_array_comes_from_the_first_element() -> None:
    jax = pytest.importorskip("jax")

    def row(i: int) -> Any:
        return jax.numpy.full(2, i)

    row.__annotations__["return"] = jax.Array
    flow = fl.from_range(4).map(row)
    assert str(flow.spec) == "int32[2]"
    assert flow.batch(2).collect()[1].tolist() == [[2, 2], [3, 3]]


def test_the_spec_of_a_tensorflow_tensor_comes_from_the_first_element() -> None:
    tf = pytest.importorskip("tensorflow")

    def row(i: int) -> Any:
        return tf.fill([2], i)

    row.__annotations__["return"] = tf.Tensor
    flow = fl.from_range(4).map(row)
    assert str(flow.spec) == "int32[2]"
    assert flow.batch(2).collect()[1].tolist() == [[2, 2], [3, 3]]


def test_an_annotated_class_is_not_probed() -> None:
    def never(i: int) -> Circle:
        raise AssertionError("an element was made")

    assert str(fl.from_range(4).map(never).spec) == "Circle(x: int, radius: float)"


def test_a_class_that_does_not_stack_is_refused_when_the_chain_is_built() -> None:
    class Opaque: ...

    def row(i: int) -> Any:
        return Opaque()

    row.__annotations__["return"] = Opaque
    with pytest.raises(fl.InvalidFlow, match="Opaque does not stack"):
        fl.from_range(4).map(row).batch(2)

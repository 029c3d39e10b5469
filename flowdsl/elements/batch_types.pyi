# Type checkers try overloads in order: a bool is an int, and an int a float.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""The type of an element's batch: a function from type to type, for type checkers.

Problem: the type of ``flow.batch(n)`` depends on the element's type, component by component, and
Python has no functions from type to type. Overloads of ``batch`` itself would need one for each
combination of components. But a checker evaluates such a function when it matches a class against
a protocol: it chooses the overloads of a method by the type of ``self``, and their return types
solve the protocol's type variable. So ``def batch(self: Batchable[B], ...) -> Flow[B, E]`` makes
the checker look up ``_form`` of the flow; for a tuple it looks up each component, and the results
determine ``B``. ``batch``, ``padded_batch`` and ``batch_by_shape`` share these types.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, overload

import attrs
import numpy as np
from _typeshed import DataclassInstance
from numpy.typing import NDArray

from flowdsl.effects import Effect
from flowdsl.elements.structure import Record, Stackable

B = TypeVar("B")
D = TypeVar("D", bound=np.generic)
D2 = TypeVar("D2", bound=np.generic)
T_co = TypeVar("T_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
A5 = TypeVar("A5")
A6 = TypeVar("A6")
A7 = TypeVar("A7")
A8 = TypeVar("A8")
B1 = TypeVar("B1")
B2 = TypeVar("B2")
B3 = TypeVar("B3")
B4 = TypeVar("B4")
B5 = TypeVar("B5")
B6 = TypeVar("B6")
B7 = TypeVar("B7")
B8 = TypeVar("B8")
E_co = TypeVar("E_co", bound=Effect, covariant=True)
A1_co = TypeVar("A1_co", covariant=True)
A2_co = TypeVar("A2_co", covariant=True)
A3_co = TypeVar("A3_co", covariant=True)
A4_co = TypeVar("A4_co", covariant=True)
A5_co = TypeVar("A5_co", covariant=True)
A6_co = TypeVar("A6_co", covariant=True)
A7_co = TypeVar("A7_co", covariant=True)
A8_co = TypeVar("A8_co", covariant=True)
B1_co = TypeVar("B1_co", covariant=True)
B2_co = TypeVar("B2_co", covariant=True)
B3_co = TypeVar("B3_co", covariant=True)
B4_co = TypeVar("B4_co", covariant=True)
B5_co = TypeVar("B5_co", covariant=True)
B6_co = TypeVar("B6_co", covariant=True)
B7_co = TypeVar("B7_co", covariant=True)
B8_co = TypeVar("B8_co", covariant=True)

# -- protocols to match ----------------------------------------------------------------------------

class Batchable(Protocol[B_co]):
    """A flow whose elements stack: their batches are ``B``."""

    def _form(self) -> Stacks[B_co]: ...

class Stacks(Protocol[B_co]):
    def batched(self) -> To[B_co]: ...

class Parts1(Protocol[B1_co]):
    def part1(self) -> Stacks[B1_co]: ...

class Parts2(Parts1[B1_co], Protocol[B1_co, B2_co]):
    def part2(self) -> Stacks[B2_co]: ...

class Parts3(Parts2[B1_co, B2_co], Protocol[B1_co, B2_co, B3_co]):
    def part3(self) -> Stacks[B3_co]: ...

class Parts4(Parts3[B1_co, B2_co, B3_co], Protocol[B1_co, B2_co, B3_co, B4_co]):
    def part4(self) -> Stacks[B4_co]: ...

class Parts5(Parts4[B1_co, B2_co, B3_co, B4_co], Protocol[B1_co, B2_co, B3_co, B4_co, B5_co]):
    def part5(self) -> Stacks[B5_co]: ...

class Parts6(
    Parts5[B1_co, B2_co, B3_co, B4_co, B5_co],
    Protocol[B1_co, B2_co, B3_co, B4_co, B5_co, B6_co],
):
    def part6(self) -> Stacks[B6_co]: ...

class Parts7(
    Parts6[B1_co, B2_co, B3_co, B4_co, B5_co, B6_co],
    Protocol[B1_co, B2_co, B3_co, B4_co, B5_co, B6_co, B7_co],
):
    def part7(self) -> Stacks[B7_co]: ...

class Parts8(
    Parts7[B1_co, B2_co, B3_co, B4_co, B5_co, B6_co, B7_co],
    Protocol[B1_co, B2_co, B3_co, B4_co, B5_co, B6_co, B7_co, B8_co],
):
    def part8(self) -> Stacks[B8_co]: ...

# -- results ---------------------------------------------------------------------------------------

class To(Generic[B_co]):
    """The batch is a ``B``."""

class Refused:
    """The type does not stack. Without this result mypy infers ``Never``.

    The overloads that return it require ``Attrs``, so that only mypy matches them. Pyright would
    conclude from this result that the class stacks for no type argument, and would report errors in
    chains that it checks later.
    """

class Unknown:
    """No value has this type, so an overload that requires it matches only ``Any``."""

class Attrs(Protocol):
    """An attrs class as mypy sees it; for pyright it is a dataclass."""

    __attrs_attrs__: ClassVar[Any]

class TypedDictLike(Protocol):
    """Any ``TypedDict``, but not a ``dict``."""

    __total__: ClassVar[bool]

class NamedTupleLike(Protocol):
    """Any ``NamedTuple``."""

    def _asdict(self) -> dict[str, Any]: ...

class Tensor(Protocol):
    """An array of another library, whose type does not show its dtype."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

Number: TypeAlias = Stackable[Any] | Tensor | bool | int | float | complex
Fields: TypeAlias = DataclassInstance | Attrs
Named: TypeAlias = NamedTupleLike | Fields
Single: TypeAlias = Number | str | bytes | list[Any] | Fields | Record[Any]
Component: TypeAlias = Single | tuple[Any, ...] | Mapping[str, Any]

@attrs.frozen
class Of(Generic[T_co]):
    """A value of type ``T``.

    The methods that require it are in other classes: mypy does not match a protocol in the ``self``
    of an overload of the same class (its issue 19381).
    """

# -- an element ------------------------------------------------------------------------------------

class Element(Of[T_co]):
    """The element of a flow; ``FlowBase`` derives from it."""

    @overload
    def _form(self: Of[Unknown]) -> Settled[Any]: ...
    @overload
    def _form(self: Of[tuple[Unknown, ...]]) -> Settled[tuple[Any, ...]]: ...
    # Most elements have one of these two types, which are faster to check as a whole.
    @overload
    def _form(
        self: Of[tuple[Stackable[D], Stackable[D2]]],
    ) -> Settled[tuple[NDArray[D], NDArray[D2]]]: ...
    @overload
    def _form(
        self: Of[tuple[Stackable[D], int]],
    ) -> Settled[tuple[NDArray[D], NDArray[np.int64]]]: ...
    @overload
    def _form(self: Of[tuple[A1]]) -> Tuple1[A1]: ...
    @overload
    def _form(self: Of[tuple[A1, A2]]) -> Tuple2[A1, A2]: ...
    @overload
    def _form(self: Of[tuple[A1, A2, A3]]) -> Tuple3[A1, A2, A3]: ...
    @overload
    def _form(self: Of[tuple[A1, A2, A3, A4]]) -> Tuple4[A1, A2, A3, A4]: ...
    @overload
    def _form(self: Of[tuple[A1, A2, A3, A4, A5]]) -> Tuple5[A1, A2, A3, A4, A5]: ...
    @overload
    def _form(self: Of[tuple[A1, A2, A3, A4, A5, A6]]) -> Tuple6[A1, A2, A3, A4, A5, A6]: ...
    @overload
    def _form(
        self: Of[tuple[A1, A2, A3, A4, A5, A6, A7]],
    ) -> Tuple7[A1, A2, A3, A4, A5, A6, A7]: ...
    @overload
    def _form(
        self: Of[tuple[A1, A2, A3, A4, A5, A6, A7, A8]],
    ) -> Tuple8[A1, A2, A3, A4, A5, A6, A7, A8]: ...
    @overload
    def _form(self: Of[tuple[Number | str, ...]]) -> Tuple[T_co]: ...
    @overload
    def _form(self: Of[Mapping[str, object]]) -> Dict[T_co]: ...
    @overload
    def _form(self: Of[Single]) -> Value[T_co]: ...
    @overload
    def _form(self: Attrs) -> Refused: ...

    # -- for ``zip`` --

    def _whole(self) -> To[T_co]: ...
    def _items(self: Of[tuple[A1, ...]]) -> To[A1]: ...
    @overload
    def _kind(
        self: Of[tuple[Any] | tuple[Any, Any] | tuple[Any, Any, Any] | tuple[Any, Any, Any, Any]],
    ) -> Short: ...
    @overload
    def _kind(self: Of[tuple[Any, ...]]) -> Long: ...
    @overload
    def _kind(self: Of[Mapping[str, Any]]) -> Keyed: ...
    @overload
    def _kind(self: Of[Any]) -> Alone: ...
    @overload
    def _kind(self: Of[Any], never: Unknown) -> None: ...

class Settled(Generic[B_co]):
    def batched(self) -> To[B_co]: ...

class Tuple(Of[T_co]):
    @overload
    def batched(self: Of[tuple[Stackable[D], ...]]) -> To[tuple[NDArray[D], ...]]: ...
    @overload
    def batched(self: Of[tuple[bool, ...]]) -> To[tuple[NDArray[np.bool_], ...]]: ...
    @overload
    def batched(self: Of[tuple[int, ...]]) -> To[tuple[NDArray[np.int64], ...]]: ...
    @overload
    def batched(self: Of[tuple[float, ...]]) -> To[tuple[NDArray[np.float64], ...]]: ...
    @overload
    def batched(self: Of[tuple[str, ...]]) -> To[tuple[list[str], ...]]: ...
    @overload
    def batched(self: Of[tuple[Number, ...]]) -> To[tuple[NDArray[Any], ...]]: ...
    @overload
    def batched(self: Of[tuple[Any, ...]]) -> To[tuple[Any, ...]]: ...

class Dict(Of[T_co]):
    @overload
    def batched(self: Of[Mapping[str, Unknown]]) -> To[dict[str, Any]]: ...
    @overload
    def batched(self: Of[Mapping[str, bool]]) -> To[dict[str, NDArray[np.bool_]]]: ...
    @overload
    def batched(self: Of[Mapping[str, int]]) -> To[dict[str, NDArray[np.int64]]]: ...
    @overload
    def batched(self: Of[Mapping[str, float]]) -> To[dict[str, NDArray[np.float64]]]: ...
    @overload
    def batched(self: Of[Mapping[str, complex]]) -> To[dict[str, NDArray[np.complex128]]]: ...
    @overload
    def batched(self: Of[Mapping[str, str]]) -> To[dict[str, list[str]]]: ...
    @overload
    def batched(self: Of[Mapping[str, bytes]]) -> To[dict[str, list[bytes]]]: ...
    @overload
    def batched(self: Of[Mapping[str, Stackable[D]]]) -> To[dict[str, NDArray[D]]]: ...
    @overload
    def batched(self: Of[Mapping[str, Number]]) -> To[dict[str, NDArray[Any]]]: ...
    @overload
    def batched(self: Of[Mapping[str, Any]]) -> To[dict[str, Any]]: ...

class Value(Of[T_co]):
    @overload
    def batched(self: Of[Unknown]) -> To[Any]: ...
    @overload
    def batched(self: Of[bool]) -> To[NDArray[np.bool_]]: ...
    @overload
    def batched(self: Of[int]) -> To[NDArray[np.int64]]: ...
    @overload
    def batched(self: Of[float]) -> To[NDArray[np.float64]]: ...
    @overload
    def batched(self: Of[complex]) -> To[NDArray[np.complex128]]: ...
    @overload
    def batched(self: Of[str]) -> To[list[str]]: ...
    @overload
    def batched(self: Of[bytes]) -> To[list[bytes]]: ...
    @overload
    def batched(self: Of[Stackable[D]]) -> To[NDArray[D]]: ...
    @overload
    def batched(self: Of[Record[B]]) -> To[B]: ...
    @overload
    def batched(self: Of[list[Unknown]]) -> To[Any]: ...
    @overload
    def batched(self: Of[list[bool] | list[list[bool]]]) -> To[NDArray[np.bool_]]: ...
    @overload
    def batched(self: Of[list[int] | list[list[int]]]) -> To[NDArray[np.int64]]: ...
    @overload
    def batched(self: Of[list[float] | list[list[float]]]) -> To[NDArray[np.float64]]: ...
    @overload
    def batched(self: Of[list[str]]) -> To[list[list[str]]]: ...
    @overload
    def batched(self: Of[Number]) -> To[NDArray[Any]]: ...
    @overload
    def batched(self: Of[Fields]) -> To[tuple[Any, ...]]: ...
    @overload
    def batched(self: Of[Single]) -> To[Any]: ...

# -- the components of a tuple ---------------------------------------------------------------------

@attrs.frozen
class Of1(Generic[A1_co]):
    @overload
    def part1(self: Of1[Component]) -> Part[A1_co]: ...
    @overload
    def part1(self: Attrs) -> Refused: ...

class Of2(Of1[A1_co], Generic[A1_co, A2_co]):
    @overload
    def part2(self: Of2[Any, Component]) -> Part[A2_co]: ...
    @overload
    def part2(self: Attrs) -> Refused: ...

class Of3(Of2[A1_co, A2_co], Generic[A1_co, A2_co, A3_co]):
    @overload
    def part3(self: Of3[Any, Any, Component]) -> Part[A3_co]: ...
    @overload
    def part3(self: Attrs) -> Refused: ...

class Of4(Of3[A1_co, A2_co, A3_co], Generic[A1_co, A2_co, A3_co, A4_co]):
    @overload
    def part4(self: Of4[Any, Any, Any, Component]) -> Part[A4_co]: ...
    @overload
    def part4(self: Attrs) -> Refused: ...

class Of5(Of4[A1_co, A2_co, A3_co, A4_co], Generic[A1_co, A2_co, A3_co, A4_co, A5_co]):
    @overload
    def part5(self: Of5[Any, Any, Any, Any, Component]) -> Part[A5_co]: ...
    @overload
    def part5(self: Attrs) -> Refused: ...

class Of6(
    Of5[A1_co, A2_co, A3_co, A4_co, A5_co],
    Generic[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co],
):
    @overload
    def part6(self: Of6[Any, Any, Any, Any, Any, Component]) -> Part[A6_co]: ...
    @overload
    def part6(self: Attrs) -> Refused: ...

class Of7(
    Of6[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co],
    Generic[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co, A7_co],
):
    @overload
    def part7(self: Of7[Any, Any, Any, Any, Any, Any, Component]) -> Part[A7_co]: ...
    @overload
    def part7(self: Attrs) -> Refused: ...

class Of8(
    Of7[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co, A7_co],
    Generic[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co, A7_co, A8_co],
):
    @overload
    def part8(self: Of8[Any, Any, Any, Any, Any, Any, Any, Component]) -> Part[A8_co]: ...
    @overload
    def part8(self: Attrs) -> Refused: ...

class Tuple1(Of1[A1_co]):
    @overload
    def batched(self: Parts1[B1]) -> To[tuple[B1]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Tuple2(Of2[A1_co, A2_co]):
    @overload
    def batched(self: Parts2[B1, B2]) -> To[tuple[B1, B2]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Tuple3(Of3[A1_co, A2_co, A3_co]):
    @overload
    def batched(self: Parts3[B1, B2, B3]) -> To[tuple[B1, B2, B3]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Tuple4(Of4[A1_co, A2_co, A3_co, A4_co]):
    @overload
    def batched(self: Parts4[B1, B2, B3, B4]) -> To[tuple[B1, B2, B3, B4]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Tuple5(Of5[A1_co, A2_co, A3_co, A4_co, A5_co]):
    @overload
    def batched(self: Parts5[B1, B2, B3, B4, B5]) -> To[tuple[B1, B2, B3, B4, B5]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Tuple6(Of6[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co]):
    @overload
    def batched(self: Parts6[B1, B2, B3, B4, B5, B6]) -> To[tuple[B1, B2, B3, B4, B5, B6]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Tuple7(Of7[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co, A7_co]):
    @overload
    def batched(
        self: Parts7[B1, B2, B3, B4, B5, B6, B7],
    ) -> To[tuple[B1, B2, B3, B4, B5, B6, B7]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Tuple8(Of8[A1_co, A2_co, A3_co, A4_co, A5_co, A6_co, A7_co, A8_co]):
    @overload
    def batched(
        self: Parts8[B1, B2, B3, B4, B5, B6, B7, B8],
    ) -> To[tuple[B1, B2, B3, B4, B5, B6, B7, B8]]: ...
    @overload
    def batched(self: Attrs) -> Refused: ...

class Part(Of[T_co]):
    @overload
    def batched(self: Of[Unknown]) -> To[Any]: ...
    @overload
    def batched(self: Of[bool]) -> To[NDArray[np.bool_]]: ...
    @overload
    def batched(self: Of[int]) -> To[NDArray[np.int64]]: ...
    @overload
    def batched(self: Of[float]) -> To[NDArray[np.float64]]: ...
    @overload
    def batched(self: Of[complex]) -> To[NDArray[np.complex128]]: ...
    @overload
    def batched(self: Of[str]) -> To[list[str]]: ...
    @overload
    def batched(self: Of[bytes]) -> To[list[bytes]]: ...
    @overload
    def batched(self: Of[Stackable[D]]) -> To[NDArray[D]]: ...
    @overload
    def batched(self: Of[Record[B]]) -> To[B]: ...
    @overload
    def batched(self: Of[list[Unknown]]) -> To[Any]: ...
    @overload
    def batched(self: Of[list[bool] | list[list[bool]]]) -> To[NDArray[np.bool_]]: ...
    @overload
    def batched(self: Of[list[int] | list[list[int]]]) -> To[NDArray[np.int64]]: ...
    @overload
    def batched(self: Of[list[float] | list[list[float]]]) -> To[NDArray[np.float64]]: ...
    @overload
    def batched(self: Of[list[str]]) -> To[list[list[str]]]: ...
    @overload
    def batched(self: Of[Number]) -> To[NDArray[Any]]: ...
    @overload
    def batched(self: Of[Fields]) -> To[tuple[Any, ...]]: ...
    @overload
    def batched(self: Of[Single]) -> To[Any]: ...
    @overload
    def batched(self: Of[tuple[Unknown, ...]]) -> To[tuple[Any, ...]]: ...
    @overload
    def batched(
        self: Of[tuple[Stackable[D], Stackable[D2]]],
    ) -> To[tuple[NDArray[D], NDArray[D2]]]: ...
    @overload
    def batched(self: Of[tuple[Any, ...]]) -> To[tuple[Any, ...]]: ...
    @overload
    def batched(self: Of[Mapping[str, Any]]) -> To[dict[str, Any]]: ...

# -- the arguments of ``zip`` ----------------------------------------------------------------------
#
# If an argument's type contains ``Any`` and two overloads accept it, mypy infers ``Any``. So the
# overloads of ``zip`` must not overlap: the overload for any element must not accept a tuple. A
# protocol excludes tuples by a method with overloads: mypy requires that the first overlapping
# overload matches, and for a tuple ``_kind`` returns another type. For pyright any matching
# overload is enough, and it tries the overloads of ``zip`` in order.

class Short:
    """A tuple of one to four components, whose types ``zip`` keeps."""

    def short(self) -> None: ...

class Long:
    """Any other tuple."""

    def long(self) -> None: ...

class Whole:
    """Not a tuple: it becomes one component."""

    def whole(self) -> None: ...

class Keyed(Whole):
    """A dict, which is merged with another dict."""

    def keyed(self) -> None: ...

class Alone(Whole):
    """Neither a tuple nor a dict."""

    def alone(self) -> None: ...

class WithEffects(Generic[E_co]):
    """A flow with these effects; ``FlowBase`` derives from it."""

    def _effects(self) -> To[E_co]: ...

class FlowOfTuples(Protocol[T_co, E_co]):
    """A flow of tuples of any length, whose components are ``T``."""

    def _effects(self) -> To[E_co]: ...
    def _items(self) -> To[T_co]: ...
    @overload
    def _kind(self) -> Long: ...
    @overload
    def _kind(self, never: Unknown) -> None: ...

class FlowOfNonTuples(Protocol[T_co, E_co]):
    """A flow of elements that are not tuples."""

    def _effects(self) -> To[E_co]: ...
    def _whole(self) -> To[T_co]: ...
    @overload
    def _kind(self) -> Whole: ...
    @overload
    def _kind(self, never: Unknown) -> None: ...

class FlowOfSingleValues(Protocol[T_co, E_co]):
    """A flow of elements that are neither tuples nor dicts."""

    def _effects(self) -> To[E_co]: ...
    def _whole(self) -> To[T_co]: ...
    @overload
    def _kind(self) -> Alone: ...
    @overload
    def _kind(self, never: Unknown) -> None: ...

class FlowOfTuplesInPyright(Protocol[T_co, E_co]):
    """A flow of tuples, for pyright only: for mypy an attrs class has no such fields.

    If an argument of ``zip`` is a call, pyright does not see that it is ``FlowOfTuples``.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def _effects(self) -> To[E_co]: ...
    def _items(self) -> To[T_co]: ...

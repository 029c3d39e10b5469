"""Elements: the values that flow, and their components.

An element is a tuple or NamedTuple (recommended), a dict, an attrs class, a dataclass, a msgspec
Struct, or a single value: an array, a number, text, or a list of them. A record is an attrs class
that names the type of its batches. An element is immutable once yielded.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeAlias, cast, get_args, get_origin

import attrs
import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from flowdsl.errors import SpecMismatch

A = TypeVar("A")
B_co = TypeVar("B_co", covariant=True)
G = TypeVar("G", bound=Callable[..., object])
D_co = TypeVar("D_co", bound=np.generic, covariant=True)

Rows: TypeAlias = tuple[Any, ...]


class Stackable(Protocol[D_co]):
    """An array or a NumPy scalar: anything with a dtype."""

    @property
    def dtype(self) -> np.dtype[D_co]: ...


@attrs.frozen
class Component:
    """Selects one component by position; typed as a function of the element (see ``c0``)."""

    index: int

    def __call__(self, element: Rows, /) -> Any:
        return element[self.index]


def _component(index: int) -> Callable[[G], G]:
    return lambda _: Component(index)  # type: ignore[return-value]  # checkers see c0's own signature


@_component(0)
def c0(element: tuple[A, *tuple[Any, ...]], /) -> A:
    """Select the first component: ``flow.map(c0)``; ``c1`` to ``c7`` select the others."""
    raise AssertionError  # the decorator replaces the function: its signature is for checkers


@_component(1)
def c1(element: tuple[Any, A, *tuple[Any, ...]], /) -> A:
    """Select the second component."""
    raise AssertionError


@_component(2)
def c2(element: tuple[Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the third component."""
    raise AssertionError


@_component(3)
def c3(element: tuple[Any, Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the fourth component."""
    raise AssertionError


@_component(4)
def c4(element: tuple[Any, Any, Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the fifth component."""
    raise AssertionError


@_component(5)
def c5(element: tuple[Any, Any, Any, Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the sixth component."""
    raise AssertionError


@_component(6)
def c6(element: tuple[Any, Any, Any, Any, Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the seventh component."""
    raise AssertionError


@_component(7)
def c7(element: tuple[Any, Any, Any, Any, Any, Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the eighth component."""
    raise AssertionError


class Record(Generic[B_co]):
    """Base of an attrs class that names the type of its batches, field by field.

    >>> import attrs, numpy as np, flowdsl as fl
    >>> @attrs.frozen
    ... class PointBatch:
    ...     x: np.ndarray
    >>> @attrs.frozen
    ... class Point(fl.Record[PointBatch]):
    ...     x: np.float32
    >>> fl.from_items([Point(np.float32(i)) for i in range(3)]).batch(2).collect()[0]
    PointBatch(x=array([0., 1.], dtype=float32))
    """


def batch_type(record: type[Record[object]]) -> type:
    """The type of a record's batches."""
    for cls in record.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Record and isinstance(get_args(base)[0], type):
                return cast("type", get_args(base)[0])
    raise SpecMismatch(
        f"{record.__name__} does not name its batch type: write class {record.__name__}"
        f"(Record[{record.__name__}Batch]) with a class that is already defined"
    )


def is_named_tuple(form: type) -> bool:
    """Return True for a class that ``typing.NamedTuple`` or ``collections.namedtuple`` made."""
    return issubclass(form, tuple) and hasattr(form, "_fields") and hasattr(form, "_make")


@lru_cache(maxsize=256)
def named_tuple_of(record: type) -> type:
    """A NamedTuple with the fields of an attrs class or a dataclass, for its batches.

    The class of a row cannot be the class of a batch: its constructor, its methods and its
    annotations are for one row. A NamedTuple has the names, and is a tuple, as type checkers see
    these batches. If a NamedTuple cannot have a name, such as ``_x``, the batch is a plain tuple.
    """
    try:
        base = namedtuple(f"{record.__name__}Batch", arguments_of(record) or ())  # type: ignore[misc]  # noqa: PYI024  # its fields are known at run time
    except ValueError:
        return tuple
    namespace = {
        "__slots__": (),
        "__module__": record.__module__,
        "_record": record,
        "__reduce__": _reduce_batch,
    }
    return type(base.__name__, (base,), namespace)


def _reduce_batch(batch: Any) -> tuple[object, ...]:
    """The ``__reduce__`` of a class made at run time, which pickle cannot find by its name."""
    return _batch_of, (batch._record, tuple(batch))


def _batch_of(record: type, parts: Rows) -> Rows:
    return cast("Rows", tuple.__new__(named_tuple_of(cast("Any", record)), parts))


_SINGLE = (np.ndarray, np.generic, int, float, str, bytes, list)
"""The common classes of single values, which have no fields."""


def components(element: object) -> list[tuple[str, Any]] | None:
    """The named components of a structured element; None for a single value."""
    if isinstance(element, tuple):
        names = getattr(element, "_fields", None) or map(str, range(len(element)))
        return list(zip(names, element, strict=True))
    if isinstance(element, dict):
        return list(element.items())
    if isinstance(element, _SINGLE):
        return None
    fields = arguments_of(type(element))
    return None if fields is None else [(name, getattr(element, name)) for name in fields]


def assemble(form: type, values: dict[str, Any]) -> Any:
    """The inverse of ``components``: make a value of the class ``form`` from its components."""
    if form is dict:
        return values
    if form is tuple:
        return tuple(values.values())
    return form(**arguments(form, values))


def remade(form: Any, values: dict[str, Any]) -> Any:
    """``assemble`` a batch, without a NamedTuple's constructor, which may check or convert rows."""
    return form._make(values.values()) if is_named_tuple(form) else assemble(form, values)


def arguments(form: type, values: dict[str, Any]) -> dict[str, Any]:
    """The constructor arguments for components, without fields that the constructor sets itself."""
    names = arguments_of(form) or {name: name for name in values}
    pairs = ((names[name], value) for name, value in values.items())
    return {name: value for name, value in pairs if name is not None}


def arguments_of(form: type) -> dict[str, str | None] | None:
    """The fields of an attrs class, dataclass or Struct, each with its constructor argument.

    The argument is None if the constructor sets the field itself. Return None for other classes.
    """
    if attrs.has(form):  # a field ``_x`` is the argument ``x``
        return {f.name: (f.alias or f.name) if f.init else None for f in attrs.fields(form)}
    if hasattr(form, "__dataclass_fields__"):
        from dataclasses import fields  # here: not needed at import

        return {f.name: f.name if f.init else None for f in fields(form)}
    names: tuple[str, ...] | None = getattr(form, "__struct_fields__", None)
    return None if names is None else {name: name for name in names}


def names_with_defaults(form: type) -> frozenset[str]:
    """The components that a class fills in if they are not passed to its constructor."""
    if attrs.has(form):
        return frozenset(f.name for f in attrs.fields(form) if f.default is not attrs.NOTHING)
    if hasattr(form, "__dataclass_fields__"):
        from dataclasses import MISSING, fields  # here: not needed at import

        missing = (MISSING, MISSING)
        pairs = ((f.name, (f.default, f.default_factory)) for f in fields(form))
        return frozenset(name for name, default in pairs if default != missing)
    if hasattr(form, "__struct_fields__"):
        from msgspec import structs

        return frozenset(f.name for f in structs.fields(form) if not f.required)
    return frozenset(getattr(form, "_field_defaults", ()))


def is_tensor(kind: type) -> bool:
    """Return True for an array class of another library, which NumPy may be able to read."""
    return hasattr(kind, "__dlpack__") and not issubclass(kind, np.ndarray)


def is_masked(value: object) -> bool:
    """Return True for a masked array: as another array, it would have its hidden values."""
    kind = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)  # slow to import
    return kind is not None and isinstance(value, kind)


IS_MASKED = "is a masked array, whose mask would be lost; fill it with a value, as x.filled(0) does"
"""The text of an error, after the name of a masked array."""


def refuse_masked(value: object) -> None:
    """Refuse a masked array where its mask would be lost.

    Raises:
        SpecMismatch: It is a masked array.
    """
    if is_masked(value):
        raise SpecMismatch(f"it {IS_MASKED}")


def in_native_order(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of the same values in this machine's byte order: a copy only if it differs.

    >>> in_native_order(np.array([1, 2], ">i4"))
    array([1, 2], dtype=int32)
    """
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def from_dlpack(tensor: Any) -> NDArray[Any]:
    """Convert another library's tensor to an array that shares its memory.

    Raises:
        SpecMismatch: NumPy cannot read it; the message has the reason.
    """
    try:
        array: NDArray[Any] = np.from_dlpack(tensor)
    except Exception as error:  # each library has its own errors
        raise SpecMismatch(
            f"NumPy cannot read this {type(tensor).__name__}: {error}; make it an array with .map, "
            f"of a dtype that NumPy has, in the memory of the CPU"
        ) from error
    return array


def form_of(element: object) -> type:
    """The class of a structured element in its spec: ``dict`` for all dicts."""
    return dict if isinstance(element, dict) else type(element)


def leaves(element: object) -> list[object]:
    """The components of an element in order, nested ones flattened; a single value is one leaf."""
    parts = components(element)
    if parts is None:
        return [element]
    return [leaf for _, value in parts for leaf in leaves(value)]


PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes}
    | {np.dtype(code).type for code in np.typecodes["All"] if code != "V"}
)
"""Common classes of immutable values."""

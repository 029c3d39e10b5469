"""Elements: the values that flow, and their components.

An element is a tuple or NamedTuple (recommended), a dict, an attrs class, a dataclass, or a single
value: an array, a number, text, or a list of them. A record is an attrs class that names the type
of its batches. An element is immutable once yielded.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from functools import lru_cache
from operator import is_
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
    """Picks one component by position; typed as a function of the element (see ``c0``)."""

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
    """The type that a record's rows stack into."""
    for cls in record.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Record and isinstance(get_args(base)[0], type):
                return cast("type", get_args(base)[0])
    raise SpecMismatch(
        f"{record.__name__} does not name its batch type: write class {record.__name__}"
        f"(Record[{record.__name__}Batch]) with a class that is already defined"
    )


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
    """The inverse of ``components``: a value of this form from its components."""
    if form is dict:
        return values
    if form is tuple:
        return tuple(values.values())
    return form(**arguments(form, values))


def arguments(form: type, values: dict[str, Any]) -> dict[str, Any]:
    """The constructor arguments for components, without the fields that it sets by itself."""
    names = arguments_of(form) or {name: name for name in values}
    pairs = ((names[name], value) for name, value in values.items())
    return {name: value for name, value in pairs if name is not None}


def arguments_of(form: type) -> dict[str, str | None] | None:
    """The fields of an attrs class or a dataclass, each with its constructor argument.

    The argument is None if the constructor sets the field itself. Other classes give None.
    """
    if attrs.has(form):  # a field ``_x`` is the argument ``x``
        return {f.name: (f.alias or f.name) if f.init else None for f in attrs.fields(form)}
    if is_dataclass(form):
        return {f.name: f.name if f.init else None for f in fields(form)}
    return None


def is_tensor(kind: type) -> bool:
    """Whether this is another library's array class, which NumPy may be able to read."""
    return hasattr(kind, "__dlpack__") and not issubclass(kind, np.ndarray)


def from_dlpack(tensor: Any) -> NDArray[Any]:
    """Another library's tensor as an array that shares its memory.

    Raises:
        SpecMismatch: NumPy cannot read it; the message says why.
    """
    try:
        array: NDArray[Any] = np.from_dlpack(tensor)
    except Exception as error:  # each library has errors of its own
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
"""Common classes of values that nobody can change."""


def _view_to_read(array: NDArray[Any]) -> NDArray[Any]:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.setflags(write=False)  # faster than by its flags
    return view


def read_only(
    element: Any, of_array: Callable[[NDArray[Any]], NDArray[Any]] = _view_to_read
) -> Any:
    """The element as it is given to several readers: none of them can change what another gets.

    Its arrays become read-only views (``of_array`` may copy them instead). The dicts, lists and
    records that hold them are copied, so a reader may change its own. Objects of other classes
    stay as they are.

    >>> image = np.zeros(2)
    >>> row = read_only({"image": image, "label": 7})
    >>> row["label"] = 8
    >>> row["image"][0] = 1.0
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """
    kind = type(element)
    if kind in PLAIN:
        return element
    if isinstance(element, np.ndarray):
        return of_array(element)
    if kind is dict:
        return {
            name: value if type(value) in PLAIN else read_only(value, of_array)
            for name, value in element.items()
        }
    if kind is list:
        if PLAIN.issuperset(map(type, element)):
            return element.copy()
        return [read_only(value, of_array) for value in element]
    if isinstance(element, tuple):
        made = [x if type(x) in PLAIN else read_only(x, of_array) for x in element]
        return element if all(map(is_, made, element)) else tuple.__new__(kind, made)
    if isinstance(element, np.void):  # a view of a row of a structured array
        return element.copy() if element.flags.writeable else element
    return _read_only_record(element, of_array)


def _read_only_record(element: object, of_array: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    kind = type(element)
    hashable: Any = kind  # which mypy does not take a type for
    names, can_be_changed = _fields_of(hashable)
    if names is None:
        return element
    made: dict[str, Any] = {}
    for name in element if isinstance(element, dict) else names:
        value = element[name] if isinstance(element, dict) else getattr(element, name)
        one = value if type(value) in PLAIN else read_only(value, of_array)
        if can_be_changed or one is not value:
            made[name] = one
    if not made and not can_be_changed:
        return element
    twin = copy(element)
    if isinstance(twin, dict):
        twin.update(made)
    else:
        for name, value in made.items():
            object.__setattr__(twin, name, value)  # no constructor: converters have run
    return twin


@lru_cache(maxsize=256)
def _fields_of(kind: type) -> tuple[tuple[str, ...] | None, bool]:
    """The names of a record's fields, None for another class; and whether they can be set."""
    if issubclass(kind, dict):
        return (), True
    fields = arguments_of(kind)
    if fields is None:
        return None, False
    # attrs has a method of its own that converts and validates what is set
    by_attrs = bool(vars(kind).get("__attrs_own_setattr__", False))
    return tuple(fields), by_attrs or kind.__setattr__ is object.__setattr__


def nbytes_of(element: object) -> int:
    """The bytes in an element: arrays, NumPy scalars, bytes and text; other values count as 0.

    >>> import numpy as np
    >>> nbytes_of((np.zeros(3), "abc", 7))
    27
    """
    return sum(map(_size, leaves(element)))


def _size(leaf: object) -> int:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return int(leaf.nbytes)
    if isinstance(leaf, list):
        return sum(map(nbytes_of, leaf))
    return len(leaf) if isinstance(leaf, (bytes, str)) else 0

"""Elements: the values that flow, and their components.

An element is a tuple or NamedTuple (recommended), a dict, an attrs class, a dataclass, a msgspec
Struct, or a single value: an array, a number, text, or a list of them. A record is an attrs class
that names the type of its batches. An element is immutable once yielded.
"""

from __future__ import annotations

import copy
import sys
from array import array as typed_array
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from io import BytesIO, StringIO
from itertools import chain
from operator import is_
from types import MemberDescriptorType
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


def replaced(element: Any, values: dict[str, Any]) -> Any:
    """Copy a structured element with other values of its components, without its constructor.

    The constructor would convert values that it has converted already, and reset what it sets
    itself.
    """
    kind = type(element)
    if kind is dict or isinstance(element, tuple):
        return remade(kind, values)
    twin = _empty_twin(element)
    return assemble(kind, values) if twin is element else _set(twin, values)


def restored(form: Any, values: dict[str, Any]) -> Any:
    """Make a value of a class with exactly these components, whatever its constructor does.

    The constructor is called for the attributes that are no components.
    """
    if form in (dict, tuple) or is_named_tuple(form):
        return remade(form, values)
    try:
        made = assemble(form, values)
    except Exception:  # it has other arguments, or refuses what it has converted already
        made = _base_of(form).__new__(form)
    return _set(made, values)


def _set(record: Any, values: dict[Any, Any]) -> Any:
    kind = type(record)
    put = _base_of(kind).__setitem__ if isinstance(record, dict) else _setter(kind)
    for name, value in values.items():
        put(record, name, value)
    return record


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


def refuse_masked(value: object) -> None:
    """Refuse a masked array where its mask would be lost.

    Raises:
        SpecMismatch: It is a masked array.
    """
    if is_masked(value):
        raise SpecMismatch(
            "it is a masked array, whose mask would be lost; fill it with a value, such as "
            "x.filled(np.nan)"
        )


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


def _read_only_view(array: NDArray[Any]) -> NDArray[Any]:
    if type(array) is not np.ndarray and _arrays_in_attributes(array):
        return _read_only_copy(array)
    if not array.flags.writeable:
        return array
    view = array.view()
    view.setflags(write=False)  # faster than ``view.flags.writeable = False``
    return view


def _arrays_in_attributes(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The arrays in the attributes of an array subclass, such as a mask, which its views share.

    A memory map has none.
    """
    attributes = getattr(array, "__dict__", {})
    return {name: part for name, part in attributes.items() if isinstance(part, np.ndarray)}


def _read_only_copy(array: NDArray[Any]) -> NDArray[Any]:
    copied = array.copy(order="K")
    shared = _arrays_in_attributes(array)
    for name, part in _arrays_in_attributes(copied).items():
        if part is shared.get(name):
            vars(copied)[name] = part.copy(order="K")
    copied.setflags(write=False)
    return copied


OfArray: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
_Seen: TypeAlias = dict[int, tuple[object, Any]]
"""The containers that are being copied and their copies, by identity: a container may contain
itself."""


def read_only(element: Any, of_array: OfArray = _read_only_view) -> Any:
    """The element for one of several readers, which cannot change the elements of the others.

    Its arrays become read-only views (``of_array`` may copy them instead); masked arrays, and other
    arrays with arrays as attributes, are copied. The dicts, lists, records and arrays of objects
    around them are copied, and so are sets, byte arrays, buffers in memory, generators of random
    numbers and PyTorch's tensors, so a reader may change its own copy. Objects of other classes are
    returned unchanged, since only their class knows what belongs to them, and so are records that
    cannot be made without their constructor.

    >>> image = np.zeros(2)
    >>> row = read_only({"image": image, "label": 7})
    >>> row["label"] = 8
    >>> row["image"][0] = 1.0
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """
    return element if type(element) in PLAIN else _read_only(element, of_array, seen=None)


def _read_only(element: Any, of_array: OfArray, seen: _Seen | None) -> Any:
    kind = type(element)
    if kind is np.ndarray:
        return _read_only_array(element, of_array, seen)
    if kind is list:
        return _read_only_list(element, of_array, seen)
    if kind is dict and PLAIN.issuperset(map(type, element.values())):
        return element.copy()
    if isinstance(element, tuple):
        return _read_only_tuple(element, of_array, seen)
    if isinstance(element, np.ndarray):
        return of_array(element)
    if isinstance(element, np.void):  # a view of a row of a structured array
        return element.copy() if element.flags.writeable else element
    seen = {} if seen is None else seen
    if id(element) in seen:
        return seen[id(element)][1]
    if kind is dict:
        made: dict[Any, Any] = {}
        seen[id(element)] = element, made
        for name, value in element.items():
            made[name] = value if type(value) in PLAIN else _read_only(value, of_array, seen)
        return made
    if isinstance(element, (list, deque)):
        return _read_only_sequence(element, of_array, seen)
    hashable: Any = kind  # mypy does not accept a type as hashable
    if (copier := _copier_of(hashable)) is not None:
        try:
            return copier(element)
        except Exception:  # a closed buffer, or a tensor that torch computed from others
            return element
    return _read_only_record(element, of_array, seen)


@lru_cache(maxsize=256)
def _copier_of(kind: type) -> Callable[[Any], Any] | None:
    """The function that copies values of a class, if they can change and have no components."""
    if issubclass(kind, (set, bytearray, typed_array, BytesIO, StringIO)):
        return copy.copy  # what they contain cannot change
    from random import Random  # here, as NumPy imports it only for ``np.random``

    generators = (Random, np.random.Generator, np.random.RandomState)
    of_torch = is_tensor(kind) and hasattr(kind, "clone")  # tensors of others cannot change
    return copy.deepcopy if issubclass(kind, generators) or of_torch else None


def _read_only_array(array: NDArray[Any], of_array: OfArray, seen: _Seen | None) -> NDArray[Any]:
    if not array.dtype.hasobject:
        return of_array(array)
    if array.dtype.names is not None:
        twin = array.copy(order="K")
        for name in array.dtype.names:
            if twin[name].dtype.hasobject:
                twin[name] = _read_only_array(array[name], of_array, seen)
    elif PLAIN.issuperset(map(type, array.flat)):
        return of_array(array)
    else:
        seen = {} if seen is None else seen
        if id(array) in seen:
            return cast("NDArray[Any]", seen[id(array)][1])
        made = np.empty(array.size, object)
        twin = made.reshape(array.shape)
        seen[id(array)] = array, twin
        for i, x in enumerate(array.flat):  # one by one: NumPy would take a list as several items
            made[i] = x if type(x) in PLAIN else _read_only(x, of_array, seen)
    twin.setflags(write=False)
    return twin


def _read_only_list(items: list[Any], of_array: OfArray, seen: _Seen | None) -> list[Any]:
    if PLAIN.issuperset(map(type, items)):
        return items.copy()
    are_lists = {list}.issuperset(map(type, items))
    if are_lists and PLAIN.issuperset(map(type, chain.from_iterable(items))):
        return list(map(list.copy, items))
    seen = {} if seen is None else seen
    if id(items) in seen:
        return cast("list[Any]", seen[id(items)][1])
    made: list[Any] = []
    seen[id(items)] = items, made
    made.extend([x if type(x) in PLAIN else _read_only(x, of_array, seen) for x in items])
    return made


def _read_only_sequence(items: Any, of_array: OfArray, seen: _Seen) -> Any:
    """A copy of a deque, or of an instance of a subclass of list."""
    twin = _empty_twin(items)
    if twin is items:
        return items
    seen[id(items)] = items, twin
    base: Any = _base_of(type(items))
    if base is deque:
        deque.__init__(twin, (), items.maxlen)
    made = (x if type(x) in PLAIN else _read_only(x, of_array, seen) for x in base.__iter__(items))
    base.extend(twin, made)
    return twin


def _read_only_tuple(element: Rows, of_array: OfArray, seen: _Seen | None) -> Rows:
    made = [x if type(x) in PLAIN else _read_only(x, of_array, seen) for x in element]
    if all(map(is_, made, element)):
        return element
    kind = type(element)
    if kind is tuple:
        return tuple(made)
    try:
        twin = tuple.__new__(kind, made)
    except TypeError:  # a class written in C may refuse this
        return element
    if hasattr(element, "__dict__"):
        vars(twin).update(vars(element))
    return twin


def _read_only_record(element: Any, of_array: OfArray, seen: _Seen) -> Any:
    kind = type(element)
    hashable: Any = kind  # mypy does not accept a type as hashable
    names, can_be_changed = _fields_of(hashable)
    if names is None:
        return element
    twin = _empty_twin(element) if can_be_changed else element
    seen[id(element)] = element, twin
    if can_be_changed and twin is element:  # it cannot be copied
        return element
    made: dict[Any, Any] = {}
    of_dict = isinstance(element, dict)
    for name in element if of_dict else names:
        value = dict.__getitem__(element, name) if of_dict else getattr(element, name)
        part = value if type(value) in PLAIN else _read_only(value, of_array, seen)
        if of_dict or part is not value:
            made[name] = part
    if made and not can_be_changed:
        twin = _empty_twin(element)
        seen[id(element)] = element, twin
    if twin is element:
        return element
    return _set(twin, made)  # without the constructor, as its converters have run already


def _setter(kind: type) -> Callable[[Any, str, Any], None]:
    """A function that sets a field of a record, also of a frozen one."""
    if not hasattr(kind, "__struct_fields__"):
        return object.__setattr__
    from msgspec.structs import force_setattr  # imported already: there is a Struct

    return force_setattr


def _base_of(kind: type) -> Any:
    """The class whose ``__new__`` makes an empty instance."""
    bases = (defaultdict, OrderedDict, dict, list, deque)
    return next((base for base in bases if issubclass(kind, base)), object)


def _empty_twin(record: Any) -> Any:
    """A shallow copy, made without the record's own copy methods, which may fail or do more.

    Its attributes are the same objects; a dict, list or deque has no items yet. Return the record
    itself if its class is written in C and refuses this.
    """
    kind = type(record)
    if hasattr(kind, "__struct_fields__"):
        return record.__copy__()  # msgspec's own method, which only copies
    try:
        twin = _base_of(kind).__new__(kind)
        for slot in _slots_of(cast("Any", kind)):
            with suppress(AttributeError):  # the slot is not set
                slot.__set__(twin, slot.__get__(record, kind))
        if hasattr(record, "__dict__"):
            vars(twin).update(vars(record))
    except TypeError:
        return record
    return twin


@lru_cache(maxsize=256)
def _slots_of(kind: type) -> tuple[MemberDescriptorType, ...]:
    members = (member for cls in kind.__mro__ for member in vars(cls).values())
    return tuple(member for member in members if isinstance(member, MemberDescriptorType))


@lru_cache(maxsize=256)
def _fields_of(kind: type) -> tuple[tuple[str, ...] | None, bool]:
    """The names of a record's fields, or None for another class; and True if users can set them."""
    if issubclass(kind, dict):
        return (), True
    fields = arguments_of(kind)
    if fields is None:
        return None, False
    # The ``__setattr__`` of attrs only converts and validates values.
    by_attrs = bool(vars(kind).get("__attrs_own_setattr__", False))
    config = getattr(kind, "__struct_config__", None)
    by_struct = config is not None and not config.frozen
    return tuple(fields), by_attrs or by_struct or kind.__setattr__ is object.__setattr__

"""Elements for one of several readers, who cannot change the elements of the others."""

from __future__ import annotations

import copy
from array import array as typed_array
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from io import BytesIO, StringIO
from itertools import chain
from operator import is_
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.rebuilding import base_of, empty_twin, set_components
from flowdsl.elements.structure import PLAIN, Rows, arguments_of, is_tensor


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
    twin = empty_twin(items)
    if twin is items:
        return items
    seen[id(items)] = items, twin
    base: Any = base_of(type(items))
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
    twin = empty_twin(element) if can_be_changed else element
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
        twin = empty_twin(element)
        seen[id(element)] = element, twin
    if twin is element:
        return element
    return set_components(twin, made)  # without the constructor, as its converters have run already


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

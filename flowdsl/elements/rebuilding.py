"""Rebuilding records with other components, without running their constructors.

The problem: a loader replaces the arrays of a record by tensors. To call the record's class with
them would run its converters and ``__post_init__`` on values that they have changed already: an
image that a class divides by 255 would be divided twice. The choice: copy the record, and set its
fields.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, cast

from flowdsl.elements.structure import assemble, is_named_tuple, remade


def replaced(element: Any, values: dict[str, Any]) -> Any:
    """Copy a structured element with other values of its components, without its constructor.

    The constructor would convert values that it has converted already, and reset what it sets
    itself.
    """
    kind = type(element)
    if kind is dict or isinstance(element, tuple):
        return remade(kind, values)
    twin = empty_twin(element)
    return assemble(kind, values) if twin is element else set_components(twin, values)


def restored(form: Any, values: dict[str, Any]) -> Any:
    """Make a value of a class with exactly these components, whatever its constructor does.

    The constructor is called, as it may set attributes that are not components.
    """
    if form in (dict, tuple) or is_named_tuple(form):
        return remade(form, values)
    try:
        made = assemble(form, values)
    except Exception:  # it has other arguments, or refuses what it has converted already
        if hasattr(form, "__struct_fields__"):  # msgspec makes a Struct by its constructor alone
            raise
        made = base_of(form).__new__(form)
    return set_components(made, values)


def set_components(record: Any, values: dict[Any, Any]) -> Any:
    """Set components of a record, also of a frozen one, without converting them; return it."""
    kind = type(record)
    put = base_of(kind).__setitem__ if isinstance(record, dict) else _setter(kind)
    for name, value in values.items():
        put(record, name, value)
    return record


def _setter(kind: type) -> Callable[[Any, str, Any], None]:
    """A function that sets a field of a record, also of a frozen one."""
    if not hasattr(kind, "__struct_fields__"):
        return object.__setattr__
    from msgspec.structs import force_setattr  # imported already: there is a Struct

    return force_setattr


def base_of(kind: type) -> Any:
    """The class whose ``__new__`` makes an empty instance."""
    bases = (defaultdict, OrderedDict, dict, list, deque)
    return next((base for base in bases if issubclass(kind, base)), object)


def empty_twin(record: Any) -> Any:
    """Return a shallow copy, made without the record's own copy methods, which may fail or do more.

    Its attributes are the same objects; a dict, list or deque has no items yet. Return the record
    itself if its class is written in C and refuses this.
    """
    kind = type(record)
    if hasattr(kind, "__struct_fields__"):
        return record.__copy__()  # msgspec's own method, which only copies
    try:
        twin = base_of(kind).__new__(kind)
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

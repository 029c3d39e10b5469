"""Pickling of objects that a script defines, since workers do not import the script.

Cloudpickle sends plain functions and classes of a script by value. It does not do so for some
objects that pickle knows only by name: a function in ``functools.cache`` or
``functools.singledispatch``, a ``typing.NewType``, a ``cached_property`` (which has a lock in
Python 3.11) and a ``singledispatchmethod`` (which has weak references since Python 3.13). This
module sends them as a constructor call with its arguments. A cache begins empty in each worker.

A function keeps the name of its file, with which a traceback shows its lines; cloudpickle 3.1.3
drops it. In a child that multiprocessing spawned, the script is ``__mp_main__``, which no other
process can import either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property, lru_cache, singledispatch, singledispatchmethod
from importlib import import_module
from operator import attrgetter
from types import CodeType, FunctionType, MemberDescriptorType
from typing import Any, NamedTuple, NewType

import cloudpickle

from flowdsl.workers.modules import SCRIPTS

_cloudpickle: Any = import_module("cloudpickle.cloudpickle")
"""The module with the functions that make classes; it has no types."""

_CACHED = type(lru_cache(len))
_DISPATCHES: CodeType = getattr(singledispatch(len), "__code__")  # noqa: B009  (not in its stub)
"""The code object that all functions of ``singledispatch`` share, and no other function has."""


class _Dispatching:
    @singledispatchmethod
    def method(self, x: object) -> object:
        return x


_METHOD: Any = _Dispatching().method
"""A bound ``singledispatchmethod``: a function with a closure, and a class since Python 3.14."""


def reduction_of(value: Any) -> tuple[Any, ...] | None:
    """Return the ``__reduce__`` tuple of a value; None if pickle's default applies."""
    kind = type(value)
    if kind is type(_METHOD) and _code_of(value) is _code_of(_METHOD):
        owner = _owner_of(value)
        return None if owner is None else (getattr, (owner, value.__name__))
    if kind is FunctionType:
        if value.__code__ is not _DISPATCHES or is_importable(value):
            return None
        return _dispatching, (value.__wrapped__, list(value.registry.items()))
    if kind is singledispatchmethod:
        return _dispatching_method, (value.func, list(value.dispatcher.registry.items()))
    if kind is cached_property:
        return cached_property, (value.func,), {"attrname": value.attrname}
    if kind not in (_CACHED, NewType) or is_importable(value):
        return None
    if kind is NewType:
        return NewType, (value.__name__, value.__supertype__), vars(value)
    state = {name: x for name, x in vars(value).items() if name != "cache_parameters"}
    return _caching, (value.__wrapped__, value.cache_parameters()), state


def whole_class(kind: type, reduction: Any) -> Any:
    """Return cloudpickle's reduction of a class, with its qualified name and its slots.

    Cloudpickle makes a class without slots, and sets the attribute ``__slots__`` afterwards. So
    objects of the copy have a ``__dict__``, and objects of the original cannot take their state.
    """
    if not isinstance(reduction, tuple) or reduction[0] is not _cloudpickle._make_skeleton_class:
        return reduction
    make, (metaclass, name, bases, namespace, *tracked), (attributes, others), *setting = reduction
    namespace = namespace | {"__qualname__": kind.__qualname__}
    slots = vars(kind).get("__slots__")
    is_named_tuple = NamedTuple in getattr(kind, "__orig_bases__", ())  # which has its own
    if isinstance(slots, (str, tuple, list, set, frozenset, dict)) and not is_named_tuple:
        namespace["__slots__"] = slots
        attributes = {
            own: value
            for own, value in attributes.items()
            if own != "__slots__" and not isinstance(value, MemberDescriptorType)
        }
    args = (metaclass, name, bases, namespace, *tracked)
    return make, args, (attributes, others), *setting


def is_struct(value: object) -> bool:
    """Return True for a class of msgspec Structs."""
    return isinstance(value, type) and hasattr(value, "__struct_config__")


def code_reduction(code: CodeType) -> tuple[Any, ...]:
    """Return the ``__reduce__`` tuple of a code object, with the name of its file."""
    _, made = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code_in, (code.co_filename, *made)


def _code_in(file: str, *made: Any) -> CodeType:
    return CodeType(*made).replace(co_filename=file)


def send_the_script() -> None:
    """In a child of multiprocessing: make cloudpickle send the script's objects by value."""
    script = sys.modules.get("__mp_main__")
    if script is not None and script.__name__ == "__mp_main__":  # else an alias of __main__
        cloudpickle.register_pickle_by_value(script)


def is_importable(value: Any) -> bool:
    """Return True if a worker can import the value from a module that is not sent by value."""
    name = value.__module__
    by_value = (*SCRIPTS, *cloudpickle.list_registry_pickle_by_value())
    if name not in sys.modules or any(f"{name}.".startswith(f"{other}.") for other in by_value):
        return False
    try:
        return attrgetter(value.__qualname__)(sys.modules[name]) is value
    except AttributeError:  # defined within a function
        return False


def _caching(func: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = lru_cache(**parameters)(func)
    return made


def _dispatching(
    func: Callable[..., Any], registry: list[tuple[type, Callable[..., Any]]]
) -> Callable[..., Any]:
    made = singledispatch(func)
    for kind, function in registry:
        made.register(kind, function)
    return made


def _dispatching_method(
    func: Callable[..., Any], registry: list[tuple[type, Callable[..., Any]]]
) -> singledispatchmethod[Any]:
    made = singledispatchmethod(func)
    for kind, function in registry:
        made.dispatcher.register(kind, function)
    return made


def _code_of(method: Any) -> CodeType | None:
    """Return the code of a function, which identifies a bound ``singledispatchmethod``.

    Since Python 3.14 such a method is of a class of its own, without code.
    """
    code: CodeType | None = getattr(method, "__code__", None)
    return code


def _owner_of(method: Any) -> Any:
    """Return the object that a ``singledispatchmethod`` is bound to; None without one."""
    if not isinstance(method, FunctionType):
        return method._obj
    cells = dict(zip(method.__code__.co_freevars, method.__closure__ or (), strict=True))
    return cells["obj"].cell_contents

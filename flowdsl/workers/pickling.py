"""What a script defines and pickle knows by name alone: workers do not import the script.

Plain functions and classes of a script are sent as they are by cloudpickle. A function in
``functools.cache`` or ``functools.singledispatch``, a ``typing.NewType`` and a ``cached_property``
(which has a lock in Python 3.11) are sent here by what they were made of. A cache begins empty in
each worker.

A function keeps the name of its file, by which a traceback shows its lines; cloudpickle 3.1.3
leaves it out. A child that multiprocessing spawned has the script as ``__mp_main__``, which no
other process can import either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property, lru_cache, singledispatch
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any, NewType

import cloudpickle

SCRIPTS = ("__main__", "__mp_main__")
"""The names of modules that are the user's script."""

_CACHED = type(lru_cache(len))
_DISPATCHES: CodeType = getattr(singledispatch(len), "__code__")  # noqa: B009  (not in its stub)
"""The code that functions of ``singledispatch`` have in common, and no others."""


def made_of(value: Any) -> tuple[Any, ...] | None:
    """How to make a value again, as ``__reduce__`` gives it; None if that is for pickle to say."""
    kind = type(value)
    if kind is FunctionType:
        if value.__code__ is not _DISPATCHES or _is_importable(value):
            return None
        return _dispatching, (value.__wrapped__, list(value.registry.items()))
    if kind is cached_property:
        return cached_property, (value.func,), {"attrname": value.attrname}
    if kind not in (_CACHED, NewType) or _is_importable(value):
        return None
    if kind is NewType:
        return NewType, (value.__name__, value.__supertype__), vars(value)
    state = {name: of for name, of in vars(value).items() if name != "cache_parameters"}
    return _caching, (value.__wrapped__, value.cache_parameters()), state


def code_made_of(code: CodeType) -> tuple[Any, ...]:
    """How to make code again, with the name of its file."""
    _, made = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code_in, (code.co_filename, *made)


def _code_in(file: str, *made: Any) -> CodeType:
    return CodeType(*made).replace(co_filename=file)


def send_the_script() -> None:
    """In a child of multiprocessing: let cloudpickle send what the script defines."""
    script = sys.modules.get("__mp_main__")
    if script is not None and script.__name__ == "__mp_main__":  # else it is a name of __main__
        cloudpickle.register_pickle_by_value(script)


def _is_importable(value: Any) -> bool:
    """Whether a worker finds the value in a module, which is not one that is to be sent."""
    name = value.__module__
    by_value = (*SCRIPTS, *cloudpickle.list_registry_pickle_by_value())
    if name not in sys.modules or any(f"{name}.".startswith(f"{other}.") for other in by_value):
        return False
    try:
        return attrgetter(value.__qualname__)(sys.modules[name]) is value
    except AttributeError:  # of a function's inside
        return False


def _caching(func: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = lru_cache(**parameters)(func)
    return made


def _dispatching(
    func: Callable[..., Any], registry: list[tuple[type, Callable[..., Any]]]
) -> Callable[..., Any]:
    made = singledispatch(func)
    for kind, of in registry:
        made.register(kind, of)
    return made

"""Pickling of msgspec Structs that a script defines.

Cloudpickle first makes an empty class and then sets its attributes, but a Struct takes its
fields from its class statement. So the class statement is repeated here, with the same fields and
settings. As with cloudpickle's own classes, a process makes each class once, and recognises the
classes that come back to it.
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType
from typing import Any

from msgspec import NODEFAULT, field

_tracker: Any = import_module("cloudpickle.cloudpickle")
"""Knows the classes that were sent by value; it has no types."""

_SETTINGS = (
    *("frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults"),
    *("forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field"),
)


def struct_reduction(kind: Any) -> tuple[Any, ...]:
    """Return the ``__reduce__`` tuple of a class of Structs."""
    own = [n for n in kind.__struct_fields__ if n in vars(kind).get("__annotations__", {})]
    settings = {name: getattr(kind.__struct_config__, name) for name in _SETTINGS}
    settings["kw_only"] = any(name not in kind.__match_args__ for name in own)
    names = ("__module__", "__qualname__", "__doc__", "__annotations__", "__post_init__")
    namespace = {name: vars(kind)[name] for name in names if name in vars(kind)}
    namespace |= {"__qualname__": kind.__qualname__}
    methods = {
        name: value
        for name, value in vars(kind).items()
        if isinstance(value, (FunctionType, staticmethod, classmethod, property))
        and name not in namespace
    }
    fields = {name: _field(kind, name) for name in own}
    tracked = _tracker._get_or_create_tracker_id(kind)
    args = tracked, type(kind), kind.__name__, kind.__bases__, namespace, fields, settings
    return _struct, args, methods, None, None, _with_methods


def _field(kind: Any, name: str) -> dict[str, Any]:
    """The arguments of ``msgspec.field`` for a field of a class."""
    fields, defaults = kind.__struct_fields__, kind.__struct_defaults__
    encoded = kind.__struct_encode_fields__[fields.index(name)]
    renamed = {} if encoded == name else {"name": encoded}
    k = fields.index(name) - (len(fields) - len(defaults))  # only the last fields have defaults
    default: Any = defaults[k] if k >= 0 else NODEFAULT
    if type(default).__name__ == "Factory":
        return renamed | {"default_factory": default.factory}
    return renamed if default is NODEFAULT else renamed | {"default": default}


def _struct(
    tracked: str,
    metaclass: Any,
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
    fields: dict[str, dict[str, Any]],
    settings: dict[str, Any],
) -> Any:
    known = _tracker._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracked)
    if known is not None:
        return known
    namespace |= {own: field(**arguments) for own, arguments in fields.items() if arguments}
    return _tracker._lookup_class_or_track(tracked, metaclass(name, bases, namespace, **settings))


def _with_methods(kind: Any, methods: dict[str, Any]) -> None:
    for name, value in methods.items():
        setattr(kind, name, value)

"""The annotations of an element class, with type arguments in place of its type parameters.

``typing.get_type_hints`` takes the class alone. Of ``Packed[NDArray[np.int32]]`` it returns the
annotations of ``Packed``, with a type variable where the array should be, and a check against these
would accept any value. This module replaces type variables by their arguments, in base classes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import (
    Any,
    Generic,
    NotRequired,
    Protocol,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import ReadOnly


def hints_of(form: object) -> dict[str, Any]:
    """The annotations of a class or generic alias; empty if one cannot be evaluated.

    >>> import flowdsl as fl
    >>> hints_of(fl.Packed[list[int]])["tokens"]
    list[int]
    """
    try:
        return type_hints(form)
    except Exception:  # an annotation that cannot be evaluated here declares nothing
        return {}


def type_hints(form: object, include_extras: bool = True) -> dict[str, Any]:
    """The annotations of a class or generic alias; with ``include_extras``, ``Annotated`` is kept.

    Raises:
        NameError: An annotation names something that is not defined in the module of its class.
        TypeError: It is not a class.
    """
    cls: Any = get_origin(form) or form
    hints = get_type_hints(cls, include_extras=include_extras)
    arguments = dict(zip(getattr(cls, "__parameters__", ()), get_args(form), strict=False))
    if not all(isinstance(parameter, TypeVar) for parameter in arguments):
        return hints  # a ParamSpec or TypeVarTuple: no component of an element has its type
    found = {name: _substituted(hint, arguments) for name, hint in hints.items()}
    for base in reversed(_bases(cls)):
        unbound = get_type_hints(get_origin(base) or base, include_extras=include_extras)
        inherited = {name for name, hint in unbound.items() if hints[name] == hint}
        bound = type_hints(_substituted(base, arguments), include_extras) if inherited else {}
        found |= {name: bound[name] for name in inherited}
    return found


def _bases(cls: type) -> list[Any]:
    """Return the bases of a class, with their type arguments, such as ``Pair[int]``."""
    # Not getattr, which returns a base class's attribute if the class has none.
    bases = vars(cls).get("__orig_bases__", cls.__bases__)
    classes = [(base, get_origin(base) or base) for base in bases]
    return [
        base
        for base, origin in classes
        if isinstance(origin, type) and origin not in (object, Generic, Protocol)
    ]


def _substituted(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    """Return an annotation with these arguments in place of type variables."""
    if isinstance(hint, TypeVar):
        return arguments.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not any(each in arguments for each in parameters):
        return hint  # a generic class without arguments has parameters, too
    return hint[tuple(arguments.get(each, each) for each in parameters)]


def without_none(hint: Any) -> tuple[Any, bool]:
    """An annotation ``A | None`` without None, and True if it had it.

    >>> without_none(NotRequired[int | None])
    (<class 'int'>, True)
    """
    if get_origin(hint) in (Required, NotRequired, ReadOnly):
        return without_none(get_args(hint)[0])
    if get_origin(hint) not in (Union, UnionType) or NoneType not in get_args(hint):
        return hint, False
    return Union[tuple(part for part in get_args(hint) if part is not NoneType)], True  # noqa: UP007  # of parts known at runtime

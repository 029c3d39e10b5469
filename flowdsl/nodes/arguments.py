"""Checks of arguments outside a chain: of sources, inputs, trainers and callbacks.

Each function returns its argument, or raises an ``InvalidArgument`` that says what the argument
must be and what it is. For two common mistakes it also says what to write: a class instead of an
instance, and one thing, such as a text, instead of a list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from flowdsl.elements.structure import PLAIN
from flowdsl.errors import InvalidArgument
from flowdsl.nodes.validation import brief, name_of

if TYPE_CHECKING:
    from pathlib import Path

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class ListOf(Protocol[A_co]):
    """A list, a tuple or another sequence, for type checkers; ``str`` is not one."""

    def __getitem__(self, index: int, /) -> A_co: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[A_co]: ...
    def __len__(self) -> int: ...


def shown(value: object) -> str:
    """Describe an argument: plain values and lists by their repr, others by their class.

    >>> shown("loss"), shown(int), shown(print), shown(object())
    ("'loss'", 'the class int', 'the function print', 'an object')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if type(value) in PLAIN or isinstance(value, (list, tuple, dict, os.PathLike)):
        return brief(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"the function {name_of(value)}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def wrong(argument: str, expected: str, value: object, advice: str = "") -> InvalidArgument:
    """The error for an argument that is not what is expected."""
    return InvalidArgument(
        f"{argument} must be {expected}, got {shown(value)}{advice and f'; {advice}'}"
    )


def checked(argument: str, value: object, kind: type[A], expected: str) -> A:
    """Return an instance of a class.

    >>> checked("draw: path", 3, str, "a path")
    Traceback (most recent call last):
        ...
    flowdsl.errors.InvalidArgument: draw: path must be a path, got 3

    Raises:
        InvalidArgument: It is something else.
    """
    if not isinstance(value, kind):
        raise wrong(argument, expected, value, _advice_to_create(value, kind))
    return value


def _advice_to_create(value: object, kind: type) -> str:
    """The advice if ``value`` is a class instead of its instance; else empty."""
    is_class = isinstance(value, type) and issubclass(value, kind)
    return f"write {cast('type', value).__name__}(...)" if is_class else ""


def checked_list(
    argument: str, values: object, kind: type[A] | tuple[type[A], ...], expected: str
) -> tuple[A, ...]:
    """Return a list of instances of a class, as a tuple.

    >>> checked_list("draw: names", "loss", str, "names")
    Traceback (most recent call last):
        ...
    flowdsl.errors.InvalidArgument: draw: names must be a list of names, got 'loss'; write ['loss']

    Raises:
        InvalidArgument: It is something else, such as one instance; or an item is.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        advice = ""
        if isinstance(values, kind):  # one instance instead of a list
            advice = f"write [{shown(values) if type(values) in PLAIN else '...'}]"
        raise wrong(argument, f"a list of {expected}", values, advice)
    listed = tuple(cast("Iterable[object]", values))
    for number, item in enumerate(listed):
        if not isinstance(item, kind) or isinstance(item, bool):  # a bool is an int to Python
            advice = "" if isinstance(kind, tuple) else _advice_to_create(item, kind)
            raise InvalidArgument(
                f"{argument} must be a list of {expected}, and item {number} is {shown(item)}"
                f"{advice and f'; {advice}'}"
            )
    return cast("tuple[A, ...]", listed)


def checked_names(argument: str, names: object) -> tuple[str, ...]:
    """Return a list of names, one or more and each once, as a tuple.

    Raises:
        InvalidArgument: It is something else, such as one name.
    """
    listed = checked_list(argument, names, str, "names")
    if not listed or len(set(listed)) < len(listed):
        raise wrong(argument, "a list of names, one or more and each once", names)
    return listed


def checked_function(
    argument: str, value: object, expected: str = "a function"
) -> Callable[..., Any]:
    """Return something that can be called.

    Raises:
        InvalidArgument: It cannot be called.
    """
    if not callable(value):
        raise wrong(argument, expected, value)
    return value


def checked_functions(argument: str, values: object) -> tuple[Callable[..., Any], ...]:
    """Return a list of functions, as a tuple.

    Raises:
        InvalidArgument: It is something else, such as one function.
    """
    listed = checked_list(argument, values, object, "functions")
    return tuple(checked_function(f"{argument}[{i}]", value) for i, value in enumerate(listed))


def checked_path(argument: str, value: object) -> Path:
    """Return a path.

    Raises:
        InvalidArgument: It is neither text nor a path.
    """
    from pathlib import Path  # slow to import

    if not isinstance(value, (str, os.PathLike)):
        raise wrong(argument, "a path", value)
    return Path(value)


def checked_choice(argument: str, value: A, *choices: A) -> A:
    """Return one of the values that are allowed.

    Raises:
        InvalidArgument: It is another.
    """
    # Only texts are compared by ==, which for other values, such as an array, may return anything.
    if not any(value is choice or (type(value) is str and value == choice) for choice in choices):
        allowed = [repr(choice) for choice in choices]
        raise wrong(argument, f"{', '.join(allowed[:-1])} or {allowed[-1]}", value)
    return value


def checked_number(argument: str, value: float, least: float, below: float | None = None) -> float:
    """Return a number of at least ``least`` and below ``below``.

    Raises:
        InvalidArgument: It is something else, such as NaN.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # ``not value >= least``, unlike ``value < least``, is true for NaN.
    if not is_number or not value >= least or (below is not None and not value < below):
        limit = "" if below is None else f" and < {below}"
        raise wrong(argument, f"a number >= {least}{limit}", value)
    return value

"""The arguments of operators: what all of them check in the same way, and in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import attrs
import numpy as np

from flowdsl.elements import Component
from flowdsl.errors import InvalidFlow


class Titled(Protocol):
    """A node, as far as a message names it."""

    @property
    def title(self) -> str: ...


MOST_ELEMENTS = 2**62
"""Positions and epochs are int64, and some arithmetic is done on them."""


def at_least(
    minimum: int, most: int | None = MOST_ELEMENTS
) -> Callable[[Titled, attrs.Attribute[int], object], None]:
    """An attrs validator: an int from ``minimum`` to below ``most``, in the words of the chain."""

    def check(node: Titled, field: attrs.Attribute[int], value: object) -> None:
        if not is_int(value, minimum, most):
            below = " and below 2**62" if is_int(value, minimum, None) else ""
            raise InvalidFlow(
                f"{spelled(node)}: {field.name} must be an int >= {minimum}{below}, got {value!r}"
            )

    return check


def is_callable(node: Titled, field: attrs.Attribute[Any], value: object) -> None:
    """An attrs validator: something to call."""
    if not callable(value):
        raise InvalidFlow(f"{spelled(node)}: {field.name} must be callable, got {value!r}")


def is_flag(node: Titled, field: attrs.Attribute[bool], value: object) -> None:
    """An attrs validator: True or False."""
    if not isinstance(value, bool):
        raise InvalidFlow(f"{spelled(node)}: {field.name} must be True or False, got {value!r}")


def plain_int(value: Any) -> Any:
    """An attrs converter: a NumPy int as an int, which neither wraps around nor fails in JSON."""
    return int(value) if isinstance(value, np.integer) else value


def is_int(value: object, minimum: int, most: int | None = MOST_ELEMENTS) -> bool:
    """Whether it is an int, and no bool, of at least this much, and below ``most``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return bool(value >= minimum and (most is None or value < most))


def spelled(node: Titled) -> str:
    """The operator's method; validators run when all fields are set, so it has its title."""
    return node.title.partition("(")[0]


def name_of(function: object) -> str:
    """How a message spells a function.

    >>> name_of(len), name_of(lambda x: x)
    ('len', '<lambda>')
    """
    if isinstance(function, Component):
        return f"c{function.index}"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2]

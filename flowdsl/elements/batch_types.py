"""The type of an element's batch; type checkers read ``batch_types.pyi`` instead."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)
E = TypeVar("E", covariant=True)


class Element(Generic[T]):
    """The element of a flow, for type checkers; it has no function at run time."""

    __slots__ = ()


class WithEffects(Generic[E]):
    """A flow with these effects, for type checkers; it has no function at run time."""

    __slots__ = ()

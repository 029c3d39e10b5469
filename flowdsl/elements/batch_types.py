"""What type the batch of an element has; ``batches.pyi`` says it to type checkers."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)
E = TypeVar("E", covariant=True)


class Element(Generic[T]):
    """What a flow gives, for type checkers: nothing is asked of it when a program runs."""

    __slots__ = ()


class WithEffects(Generic[E]):
    """A flow with these effects, for type checkers likewise."""

    __slots__ = ()

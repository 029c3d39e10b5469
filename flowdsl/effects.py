"""What the operators of a flow do to the rows of its sources: a row of tags, joined by ``|``.

``Flow[T, Reordered | Endless]`` may permute its rows and never stops. A row of tags is a promise by
what it leaves out, so ``Exact``, which carries none, is assignable to every other, and ``Flow[T]``
promises nothing at all. Rows are counted through grouping: a batch is its rows. The rows of a flow
are those that the chain asks for: ``take`` and ``filter`` say which, and that is no effect.

Each tag is a sentence, and a law of the test suite holds every operator to it.

The idea is the effect row of Koka (Leijen, "Koka: Programming with Row-Polymorphic Effect Types",
2014), written with what a Python type checker has: unions and inheritance.
"""

from __future__ import annotations

from typing import TypeAlias


class Effect:
    """The top of the row: anything may have happened."""


class Reordered(Effect):
    """The rows are those of the sources, in another order."""


class Resampled(Effect):
    """Rows may come more than once, or be missing for no reason that the chain gives."""


class Unsized(Effect):
    """The pass ends, but its length is known only then."""


class Endless(Effect):
    """The pass never ends."""


class Exact(Reordered, Resampled, Unsized, Endless):
    """The bottom of the row: every row once, in source order, a known number of them.

    It inherits from every tag so that ``Exact`` fits wherever a tag is allowed.
    """


Tag: TypeAlias = type[Effect]

Counted: TypeAlias = Reordered | Resampled
"""Allows what still has a known length."""

Finite: TypeAlias = Reordered | Resampled | Unsized
"""Allows what ends."""

InOrder: TypeAlias = Unsized | Endless
"""Allows what keeps every row, in order."""

Unmoved: TypeAlias = Resampled | Unsized | Endless
"""Allows what has not been reordered: its elements can be told, and paired, by position."""

TAGS: tuple[Tag, ...] = (Reordered, Resampled, Unsized, Endless)


def describe(tags: frozenset[Tag]) -> str:
    """Name a row as types spell it.

    >>> describe(frozenset({Endless, Reordered}))
    'Reordered | Endless'
    >>> describe(frozenset())
    'Exact'
    """
    return " | ".join(tag.__name__ for tag in TAGS if tag in tags) or "Exact"

"""What the operators of a flow do to the rows of its sources: a row of tags, joined by ``|``.

``Flow[T, Reordered | Endless]`` may permute its rows and never stops. The tags that are absent are
the promise, so ``Exact``, which has none, is assignable to every other row of tags, and ``Flow[T]``
promises nothing. A batch counts as the rows in it. Leaving out rows by ``take`` or ``filter`` is no
effect: the chain asks for it.

Each tag is a sentence, which a law of the test suite checks on every operator.

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
"""Allows flows of known length."""

Finite: TypeAlias = Reordered | Resampled | Unsized
"""Allows flows that end."""

InOrder: TypeAlias = Unsized | Endless
"""Allows flows that keep every row, in order."""

Unmoved: TypeAlias = Resampled | Unsized | Endless
"""Allows flows that are not reordered: positions identify their elements, for pairing."""

TAGS: tuple[Tag, ...] = (Reordered, Resampled, Unsized, Endless)


def describe(tags: frozenset[Tag]) -> str:
    """Name a row as types spell it.

    >>> describe(frozenset({Endless, Reordered}))
    'Reordered | Endless'
    >>> describe(frozenset())
    'Exact'
    """
    return " | ".join(tag.__name__ for tag in TAGS if tag in tags) or "Exact"

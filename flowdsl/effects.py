"""The effects of a flow's operators on its source rows: a union of tags, joined by ``|``.

``Flow[T, Reordered | Endless]`` may permute its rows and never stops. A flow guarantees that the
effects absent from its type do not occur, so ``Exact``, which has no tag, is assignable to every
other union, and ``Flow[T]`` guarantees nothing. A batch counts as the rows in it. Leaving out rows
by ``take`` or ``filter`` is not an effect, as the chain requests it.

Each tag has a defining sentence, which the test suite checks on every operator.

The idea is the effect row of Koka (Leijen, "Koka: Programming with Row-Polymorphic Effect Types",
2014), expressed by the unions and inheritance of Python's type checkers.
"""

from __future__ import annotations

from typing import TypeAlias


class Effect:
    """The top type: any effect may occur."""


class Reordered(Effect):
    """The rows of the sources come in another order."""


class Resampled(Effect):
    """Rows may come more than once, or be missing without an operator that leaves them out."""


class Unsized(Effect):
    """The pass ends, but its length is known only then."""


class Endless(Effect):
    """The pass never ends."""


class Exact(Reordered, Resampled, Unsized, Endless):
    """The bottom type, without effects: every row once, in source order, a known number of rows.

    It inherits from every tag so that ``Exact`` fits wherever a tag is allowed.
    """


Tag: TypeAlias = type[Effect]

# An alias is an upper bound: a flow fits it if each tag of the flow is among these.
#
# alias     Reordered  Resampled  Unsized  Endless
# Counted       x          x
# Finite        x          x         x
# InOrder                            x        x
# Unmoved                  x         x        x

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
    """The tags as they are written in a type.

    >>> describe(frozenset({Endless, Reordered}))
    'Reordered | Endless'
    >>> describe(frozenset())
    'Exact'
    """
    return " | ".join(tag.__name__ for tag in TAGS if tag in tags) or "Exact"

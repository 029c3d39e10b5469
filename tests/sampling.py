"""The number of examples that a property-based test draws.

Every run of the tests draws the same examples, so many of them would repeat what earlier runs have
shown. ``make explore`` draws new ones in each round.
"""

from __future__ import annotations

from hypothesis import settings

from flowdsl.testing.outcomes import reference
from flowdsl.testing.recipes import Recipe


def examples(exploring: int) -> int:
    """Return the number of examples: all in ``make explore``, else 5%, and at least 2."""
    return max(2, exploring * settings().max_examples // _EXPLORING)


_EXPLORING = 100
"""The examples that ``make explore`` draws where a test does not say how many."""


def place(recipe: Recipe, number: int, procs: int = 0, epoch: int = 0) -> int:
    """Return the position of a pass for any number: none of them is beyond its end."""
    return number % (1 + len(reference(recipe.build(procs).node, epoch)))

"""Random recipes of placement and error operators, with their models."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import attrs
from hypothesis import strategies as st

from flowdsl.effects import Reordered, Resampled
from flowdsl.testing import Draw, Model, Recipe
from flowdsl.testing.operators import (
    a_row,
    enumerate_,
    filter_,
    map_,
    map_failing,
    on_error,
    prefetch,
    random_map,
)
from tests.operators.mapping import filter_map, inspect, map_component, select, starmap


def unordered(draw: Draw, recipe: Recipe) -> Recipe:
    """With one worker: with several, only a law on permutations holds."""
    return recipe.then(
        "prefetch(unordered)", lambda f, _: f.prefetch(ordered=False), unordered_model
    )


def unordered_model(source: Model) -> Model:
    """Still in order, as there is only one worker."""
    return attrs.evolve(source, tags=source.tags | {Reordered})


def replicate(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.has_many_elements or not recipe.flow.node.replayable:
        return prefetch(draw, recipe)
    n = draw(st.integers(1, 3))
    return recipe.then(
        f"replicate({n})", lambda f, _: f.replicate(n), lambda m: replicate_model(m, n)
    )


def replicate_model(source: Model, n: int) -> Model:
    def in_turn(epoch: int) -> Iterator[Any]:
        copies = deque(source.elements((epoch * n + k) % 2**62) for k in range(n))
        while copies:
            copy = copies.popleft()
            for x in islice(copy, 1):
                yield x
                copies.append(copy)

    return source.then_renumbered(in_turn, source.times(n), Resampled)


_ATTEMPTED = (map_, map_component, random_map, select, starmap)


def attempt(draw: Draw, recipe: Recipe) -> Recipe:
    return on_error(draw, draw(st.sampled_from(_ATTEMPTED))(draw, recipe))


def attempt_to_filter(draw: Draw, recipe: Recipe) -> Recipe:
    return on_error(draw, draw(st.sampled_from([filter_, filter_map]))(draw, recipe))


def attempt_to_count(draw: Draw, recipe: Recipe) -> Recipe:
    if draw(st.booleans()):
        recipe = map_failing(recipe, a_row(draw, recipe))
    return on_error(draw, draw(st.sampled_from([enumerate_, inspect]))(draw, recipe))

"""Random recipes of operators that choose rows by number, with their models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from flowdsl.effects import Reordered, Resampled, Tag
from flowdsl.nodes import integers, permute, uniform
from flowdsl.testing import Draw, Model, Recipe
from flowdsl.testing.operators import NUMBERS, SEEDS, take


def every(draw: Draw, recipe: Recipe) -> Recipe:
    step = draw(NUMBERS)
    return recipe.then(
        f"[::{step}]", lambda f, _: f[::step], lambda m: every_model(m, step), omits=True
    )


def every_model(source: Model, step: int) -> Model:
    if step == 1:
        return source
    length = None if source.length is None else len(range(0, source.length, step))
    return source.then_renumbered(
        lambda epoch: (x for k, x in enumerate(source.elements(epoch)) if k % step == 0), length
    ).selected_by_position()


def backwards(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.flow.node.length is None:
        return every(draw, recipe)
    return recipe.then("[::-1]", lambda f, _: f[::-1], backwards_model)


def backwards_model(source: Model) -> Model:
    return source.then_renumbered(
        lambda epoch: list(source.elements(epoch))[::-1], source.length, Reordered
    )


def select_rows(draw: Draw, recipe: Recipe) -> Recipe:
    length = recipe.flow.node.length
    if length is None:
        return take(draw, recipe)
    positions = draw(st.lists(st.integers(-length, length - 1), max_size=9)) if length else []
    return recipe.then(
        f"select_rows({positions})",
        lambda f, _: f.select_rows(positions),
        lambda m: select_rows_model(m, positions),
        omits=True,
        repeats=True,
    )


def select_rows_model(source: Model, positions: list[int]) -> Model:
    def selected(epoch: int) -> Iterator[Any]:
        elements = list(source.elements(epoch))
        return (elements[i] for i in positions)

    chosen = [i % (source.length or 1) for i in positions]
    repeats = len(set(chosen)) < len(chosen)
    tags: list[Tag] = [Reordered] if chosen != sorted(chosen) else []
    tags += [Resampled] if repeats or Reordered in source.tags else []
    return source.then_renumbered(selected, len(positions), *tags)


def sample(draw: Draw, recipe: Recipe) -> Recipe:
    length = recipe.flow.node.length
    if length is None:
        return take(draw, recipe)
    replacement, seed = draw(st.booleans()), draw(SEEDS)
    n = draw(st.integers(0, 12 if replacement else min(12, length))) if length else 0
    return recipe.then(
        f"sample({n}, {replacement}, {seed})",
        lambda f, _: f.sample(n, replacement=replacement, seed=seed),
        lambda m: sample_model(m, n, None, replacement, seed),
        omits=True,
        repeats=True,
    )


def weighted_sample(draw: Draw, recipe: Recipe) -> Recipe:
    length = recipe.flow.node.length
    if length is None or length > MAX_WEIGHTS:
        return sample(draw, recipe)
    replacement, seed = draw(st.booleans()), draw(SEEDS)
    weights = draw(st.lists(st.sampled_from([0, 1, 2.5]), min_size=length, max_size=length))
    possible = sum(weight > 0 for weight in weights)
    n = draw(st.integers(0, 12 if replacement else min(12, possible))) if possible else 0
    return recipe.then(
        f"sample({n}, {weights}, {replacement}, {seed})",
        lambda f, _: f.sample(n, weights, replacement=replacement, seed=seed),
        lambda m: sample_model(m, n, weights, replacement, seed),
        omits=True,
        repeats=True,
    )


MAX_WEIGHTS = 100
"""The number of weights that are drawn at most."""


def sample_model(
    source: Model, n: int, weights: list[float] | None, replacement: bool, seed: int
) -> Model:
    salt, length = source.depth, source.length or 0

    def chosen(key: str) -> list[int]:
        if weights is None:
            draw = integers if replacement else permute
            return [int(i) for i in draw(np.arange(n), length, key)]
        if replacement:
            ends = np.cumsum(weights)
            return [
                next(i for i, end in enumerate(ends) if u * ends[-1] < end)
                for u in uniform(np.arange(n), key)
            ]
        waits = [
            -np.log1p(-u) / weight if weight else np.inf
            for u, weight in zip(uniform(np.arange(length), key), weights, strict=True)
        ]
        return sorted(range(length), key=waits.__getitem__)[:n]

    def sampled(epoch: int) -> Iterator[Any]:
        elements = list(source.elements(epoch))
        return (elements[i] for i in chosen(f"{seed}/{salt}/{epoch}"))

    return source.then_renumbered(sampled, n, Reordered, Resampled)

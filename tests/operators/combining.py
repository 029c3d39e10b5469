"""Random recipes of operators on several flows, with their models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from hypothesis import strategies as st

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.nodes.random_sequences import Independent, Mixed
from flowdsl.testing import Draw, Model, Recipe, models
from flowdsl.testing.combining import combined, with_others
from flowdsl.testing.operators import SEEDS


def choose(draw: Draw, recipe: Recipe, first: bool = False) -> Recipe:
    recipe, others = with_others(draw, recipe)
    seed, weights = draw(SEEDS), None
    if draw(st.booleans()):
        weights = [draw(st.sampled_from([0.2, 1, 3])) for _ in range(1 + len(others))]
    return combined(
        recipe,
        f"choose {weights} {seed}{' first' * first}",
        others,
        lambda f, *o: f.choose(
            *o, probabilities=weights, seed=seed, stop="first" if first else "last"
        ),
        lambda *m: choose_model(m, weights, seed, first),
        chooses=first,
    )


def choose_first(draw: Draw, recipe: Recipe) -> Recipe:
    return choose(draw, recipe, first=True)


def choose_model(
    parts: Sequence[Model], weights: Sequence[float] | None, seed: int, first: bool
) -> Model:
    salt = max(part.depth for part in parts)
    weights = weights or [1.0] * len(parts)

    def chosen(epoch: int) -> Iterator[Any]:
        left = [(part.elements(epoch), w) for part, w in zip(parts, weights, strict=True)]
        while left:
            total = sum(w for _, w in left)
            share = tuple(float(w / total) for _, w in left)
            for i in Independent(seed, f"{salt}-{len(left)}", epoch, share).parts():
                found = list(islice(left[i][0], 1))
                if not found:
                    left = [] if first else [*left[:i], *left[i + 1 :]]
                    break
                yield found[0]

    if first:
        stopped = models.of_several(parts, chosen, None, Reordered, Resampled, Unsized)
        return models.ending_with_any(stopped, parts)
    return models.of_several(parts, chosen, models.total_length(parts), Reordered)


def mix(draw: Draw, recipe: Recipe) -> Recipe:
    recipe, others = with_others(draw, recipe)
    lengths = [r.flow.node.length for r in (recipe, *others)]
    known = [n for n in lengths if n is not None]
    if len(known) < len(lengths):
        return combined(
            recipe, "interleave", others, lambda f, *o: f.interleave(*o), models.interleave
        )
    seed = draw(SEEDS)
    return combined(
        recipe,
        f"mix {seed}",
        others,
        lambda f, *o: f.mix(*o, seed=seed),
        lambda *m: mix_model(m, known, seed),
    )


def mix_model(parts: Sequence[Model], lengths: Sequence[int], seed: int) -> Model:
    salt = max(part.depth for part in parts)

    def mixed(epoch: int) -> Iterator[Any]:
        streams = [part.elements(epoch) for part in parts]
        order = Mixed(seed, str(salt), epoch, tuple(lengths)).parts()
        for i in islice(order, sum(lengths)):
            yield from islice(streams[i], 1)

    return models.of_several(parts, mixed, sum(lengths), Reordered)

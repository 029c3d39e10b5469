"""Random recipes of operators on the number of elements, with their models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

from flowdsl.effects import Endless, Resampled, Unsized
from flowdsl.nodes.random_sequences import Mixed
from flowdsl.ops.sharding import Even
from flowdsl.testing import Draw, Model, Recipe, models
from flowdsl.testing.operators import NUMBERS, SEEDS, take


def shard(draw: Draw, recipe: Recipe) -> Recipe:
    n = draw(NUMBERS)
    i = draw(st.integers(0, n - 1))
    return recipe.then(
        f"shard({n}, {i})",
        lambda f, _: f.shard(n, i),
        lambda m: shard_model(m, n, i),
        omits=True,
    )


def even_shard(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.build().node.length is None:
        return take(draw, recipe)
    n = draw(NUMBERS)
    i = draw(st.integers(0, n - 1))
    even: Even = draw(st.sampled_from(["drop", "pad"]))
    return recipe.then(
        f"shard({n}, {i}, even={even!r})",
        lambda f, _: f.shard(n, i, even=even),
        lambda m: even_shard_model(m, n, i, even),
        omits=True,
        repeats=True,
    )


def even_shard_model(source: Model, n: int, i: int, even: Even) -> Model:
    rows = source.length or 0
    length = rows // n if even == "drop" else -(-rows // n)

    def elements(epoch: int) -> Iterator[Any]:
        passes = (source.elements(epoch) for _ in count())
        every = (x for k, x in enumerate(chain.from_iterable(passes)) if k % n == i)
        return islice(every, length)

    return source.then_renumbered(elements, length, Resampled).selected_by_position()


def shard_model(source: Model, n: int, i: int) -> Model:
    length = None if source.length is None else len(range(i, source.length, n))
    return source.then_renumbered(
        lambda epoch: (x for k, x in enumerate(source.elements(epoch)) if k % n == i), length
    ).selected_by_position()


def repeat_each(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.has_many_elements:
        return take(draw, recipe)
    n = draw(st.integers(0, 3))
    return recipe.then(
        f"repeat_each({n})",
        lambda f, _: f.repeat_each(n),
        lambda m: repeat_each_model(m, n),
        omits=n == 0,
    )


def repeat_each_model(source: Model, n: int) -> Model:
    if n == 0:
        return models.take(source, 0)
    return source.then_renumbered(
        lambda epoch: (x for x in source.elements(epoch) for _ in range(n)),
        source.times(n),
        Resampled,
    )


def fixed_size(draw: Draw, recipe: Recipe) -> Recipe:
    n = 0 if recipe.flow.node.length == 0 else draw(st.integers(0, 30))
    keep = draw(st.booleans())
    return recipe.then(
        f"fixed_size({n}, {keep})",
        lambda f, _: f.fixed_size(n, keep),
        lambda m: fixed_size_model(m, n, keep),
        omits=True,
        repeats=True,
    )


def fixed_size_model(source: Model, n: int, keep_state: bool) -> Model:
    def elements(epoch: int) -> Iterator[Any]:
        if keep_state and epoch * n <= 2**40:  # more than any epoch but one that was drawn
            # Earlier elements are not read if they can be counted: a queue yields them only once.
            first, start = divmod(epoch * n, source.length) if source.length else (0, epoch * n)
            passes = (models.one_pass_of(source, k) for k in count(first))
            return islice(chain.from_iterable(passes), start, start + n)
        passes = (models.one_pass_of(source, models.inner_epoch(epoch, k)) for k in count())
        return islice(chain.from_iterable(passes), n)

    sized = attrs.evolve(source, tags=source.tags - {Unsized, Endless})
    return sized.then_renumbered(elements, n, Resampled)


def split(draw: Draw, recipe: Recipe) -> Recipe:
    """A part of a split, usually by shares, which are then whole numbers of rows."""
    n = recipe.flow.node.length or 0
    if recipe.flow.effects or n < 2:
        return take(draw, recipe)
    ends = draw(st.lists(st.integers(1, n - 1), min_size=1, max_size=2, unique=True))
    counts = np.diff([0, *sorted(ends), n]).tolist()
    sizes = [draw(st.sampled_from([count, count / n])) for count in counts[:-1]]
    number, seed = draw(st.integers(0, len(sizes))), draw(SEEDS)
    return recipe.then(
        f"split({sizes}, {seed})[{number}]",
        lambda f, _: f.split(*sizes, seed=seed)[number],
        lambda m: split_model(m, counts, seed, number),
        omits=True,
    )


def split_model(source: Model, counts: Sequence[int], seed: int, number: int) -> Model:
    def part(epoch: int) -> Iterator[Any]:
        order = Mixed(seed, "split", 0, tuple(counts)).parts()  # in every epoch, at any depth
        return (x for x, k in zip(source.elements(epoch), order, strict=False) if k == number)

    return source.then_renumbered(part, counts[number])

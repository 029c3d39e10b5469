"""Random recipes of operators on several flows, with their models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import count, islice
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.effects import Reordered, Resampled, Tag, Unsized
from flowdsl.nodes.random_sequences import Independent, Mixed
from flowdsl.nodes.turns import proportional
from flowdsl.ops.combining import Stop
from flowdsl.testing import Draw, Model, Recipe, functions, models
from flowdsl.testing.combining import combined, with_others
from flowdsl.testing.operators import SEEDS, a_row

Places: TypeAlias = Iterator[int]
OrderOf: TypeAlias = Callable[[int, list[int]], Places]
"""For an epoch and the flows that have turns: the places of the flows, turn by turn."""


def interleave(draw: Draw, recipe: Recipe, stop: Stop = "last") -> Recipe:
    recipe, others, weights, stop = with_weights(draw, recipe, stop)
    block = draw(st.integers(1, 3)) if weights is None else 1
    cycle = draw(st.integers(1, 3)) if weights is None and stop == "last" else None
    return combined(
        recipe,
        f"interleave {weights} {cycle} {block} {stop}",
        others,
        lambda f, *o: f.interleave(*o, weights=weights, cycle=cycle, block=block, stop=stop),
        lambda *m: interleave_model(m, weights, stop, cycle, block),
        omits=stop == "first",
        repeats=stop == "all",
    )


def interleave_first(draw: Draw, recipe: Recipe) -> Recipe:
    return interleave(draw, recipe, "first")


def interleave_all(draw: Draw, recipe: Recipe) -> Recipe:
    return interleave(draw, recipe, "all")


def interleave_map(draw: Draw, recipe: Recipe) -> Recipe:
    least = 0 if recipe.endless else draw(st.integers(-1, 0))
    func: Any = partial(functions.burst, least)
    if draw(st.integers(0, 7)) == 0:
        func = partial(functions.broken_burst, a_row(draw, recipe))
    cycle, block = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    return recipe.then(
        f"interleave_map({func.func.__name__} {func.args[0]}, {cycle}, {block})",
        lambda f, _: f.interleave_map(func, cycle, block),
        lambda m: models.interleave_map(m, func, cycle, block),
        filters=least < 0,
        loses_marks=True,
    )


def named(draw: Draw, recipe: Recipe) -> Recipe:
    recipe, others = with_others(draw, recipe)
    names = [f"flow {k}" for k in range(1 + len(others))]
    return combined(
        recipe,
        "interleave with names",
        others,
        lambda *flows: fl.interleave(dict(zip(names, flows, strict=True)), with_names=True),
        lambda *m: interleave_model(
            [_with_name(part, name) for part, name in zip(m, names, strict=True)], None, "last"
        ),
        reshapes=True,
    )


def _with_name(model: Model, name: str) -> Model:
    return models.map_(model, lambda x: (name, x)).at_depth(model.depth)


def choose(draw: Draw, recipe: Recipe, stop: Stop = "last") -> Recipe:
    recipe, others, weights, stop = with_weights(draw, recipe, stop)
    seed = draw(SEEDS)
    return combined(
        recipe,
        f"choose {weights} {seed} {stop}",
        others,
        lambda f, *o: f.choose(*o, weights=weights, seed=seed, stop=stop),
        lambda *m: choose_model(m, weights, seed, stop),
        omits=stop == "first",
        repeats=stop == "all",
    )


def choose_first(draw: Draw, recipe: Recipe) -> Recipe:
    return choose(draw, recipe, "first")


def choose_all(draw: Draw, recipe: Recipe) -> Recipe:
    return choose(draw, recipe, "all")


def with_weights(
    draw: Draw, recipe: Recipe, stop: Stop
) -> tuple[Recipe, list[Recipe], list[float] | None, Stop]:
    recipe, others = with_others(draw, recipe)
    weights = None
    if draw(st.booleans()):
        weights = [draw(st.sampled_from([0.2, 1, 3])) for _ in range(1 + len(others))]
    if any(r.flow.node.length == 0 for r in (recipe, *others)):
        stop = "last"  # which "all" refuses
    return recipe, others, weights, stop


def interleave_model(
    parts: Sequence[Model],
    weights: Sequence[float] | None,
    stop: Stop,
    cycle: int | None = None,
    block: int = 1,
) -> Model:
    if weights is None and stop == "last":

        def in_slots(epoch: int) -> Iterator[Any]:
            waiting = (part.elements(epoch) for part in parts)
            return models.in_slots(waiting, cycle or len(parts), block)

        return models.of_several(parts, in_slots, models.total_length(parts), Reordered)
    shares = [Fraction(str(w)) for w in weights or [1] * len(parts)]

    def order(epoch: int, left: list[int]) -> Places:
        here = tuple(shares[k] for k in left)
        return proportional(here).parts() if len(set(here)) > 1 else _blocks(len(here), block)

    model = in_turn(parts, order, lambda left, place: left[place + 1 :] + left[:place], stop)
    if Unsized in model.tags or model.endless or stop == "last":
        return model
    taken = [0] * len(parts)
    wanted = [math.inf if part.length is None else part.length for part in parts]
    for n, k in enumerate(order(0, list(range(len(parts))))):
        taken[k] += 1
        if stop == "first" and taken[k] > wanted[k]:
            return attrs.evolve(model, length=n)
        if stop == "all" and all(t >= w for t, w in zip(taken, wanted, strict=True)):
            return attrs.evolve(model, length=n + 1)
    raise AssertionError("it ends")


def _blocks(n: int, block: int) -> Places:
    for k in count():
        yield k // block % n


def choose_model(
    parts: Sequence[Model], weights: Sequence[float] | None, seed: int, stop: Stop
) -> Model:
    salt = max(part.depth for part in parts)
    weights = weights or [1.0] * len(parts)

    def order(epoch: int, left: list[int]) -> Places:
        total = sum(weights[k] for k in left)
        share = tuple(float(weights[k] / total) for k in left)
        return Independent(seed, f"{salt}-{len(left)}", epoch, share).parts()

    tags = () if stop == "last" else (Unsized,)
    return in_turn(parts, order, lambda left, place: left[:place] + left[place + 1 :], stop, *tags)


def in_turn(
    parts: Sequence[Model],
    order: OrderOf,
    without: Callable[[list[int], int], list[int]],
    stop: Stop,
    *tags: Tag,
) -> Model:
    """Flows that take turns in this order."""
    everyone = list(range(len(parts)))

    def until_last(epoch: int) -> Iterator[Any]:
        streams = [part.elements(epoch) for part in parts]
        left = everyone
        while left:
            for place in order(epoch, left):
                found = list(islice(streams[left[place]], 1))
                if not found:
                    left = [] if stop == "first" else without(left, place)
                    break
                yield found[0]

    def until_all(epoch: int) -> Iterator[Any]:
        seen = [False] * len(parts)
        passes = [_passes(part, epoch, seen, k) for k, part in enumerate(parts)]
        for k in order(epoch, everyone):
            yield next(passes[k])
            if all(seen):
                return

    if stop == "last":
        total = models.total_length(parts)
        return models.of_several(parts, until_last, total, Reordered, *tags)
    elements = until_all if stop == "all" else until_last
    model = models.of_several(parts, elements, None, Reordered, Resampled, *tags)
    return models.ending_with_any(model, parts) if stop == "first" else model


def _passes(part: Model, epoch: int, seen: list[bool], k: int) -> Iterator[Any]:
    """Pass after pass of a part; notes the last element of the first pass."""
    first, failed = list[Any](), None
    elements = models.one_pass_of(part, models.inner_epoch(epoch, 0))
    if part.endless:
        yield from elements
    try:
        first.extend(elements)
    except Exception as error:
        failed = error
    for i, x in enumerate(first, 1):
        seen[k] = i == len(first) and failed is None
        yield x
    if failed is not None:
        raise failed
    for n in count(1):
        yield from models.one_pass_of(part, models.inner_epoch(epoch, n))


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

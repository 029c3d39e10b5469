"""Random flows: a strategy for every operator, and chains of them over random sources.

An operator without a strategy here fails ``test_every_operator_has_a_strategy``.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, Flow
from tests.elements import FORMS, ids, make, with_data

AnyFlow = Flow[Any, Any]
Step = Callable[[AnyFlow, int], AnyFlow]
"""Chains an operator to a flow; the number is that of the processes a prefetch is to use."""

MOST_ROWS = 12
MOST_ELEMENTS = 60
"""How much of a flow is looked at: random chains may be endless, or very long."""


@attrs.frozen
class Recipe:
    """A random flow, to be built with any number of processes."""

    source: AnyFlow = attrs.field(repr=False)
    form: str
    names: tuple[str, ...] = ()
    steps: tuple[Step, ...] = attrs.field(default=(), repr=False)

    def build(self, procs: int = 0) -> AnyFlow:
        flow = self.source
        for step in self.steps:
            flow = step(flow, procs)
        return flow

    def then(self, name: str, step: Step) -> Recipe:
        return attrs.evolve(self, names=(*self.names, name), steps=(*self.steps, step))


# -- functions that travel by name -------------------------------------------------------------


def _make_rows(form: str, n: int) -> Iterator[Any]:
    return (make(form, i) for i in range(n))


def _scale(element: Any) -> Any:
    return with_data(element, lambda data: data * 3 + 1)


def _noise(element: Any, rng: np.random.Generator) -> Any:
    return with_data(element, lambda data: data + rng.random(data.shape))


def _keep(modulus: int, rest: int, element: Any) -> bool:
    return sum(ids(element)) % modulus != rest


def _fail_on(bad: int, element: Any) -> Any:
    if bad in ids(element):
        raise ValueError(f"row {bad} is bad")
    return element


def _unstar(*components: Any) -> Any:
    return tuple(components)


# -- sources -----------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return Path(folder)


@cache
def _lmdb(form: str, n: int) -> str:
    path = _folder() / f"{form}{n}.lmdb"
    fl.from_items(list(_make_rows(form, n))).write_lmdb(path)
    return str(path)


def _from_items(form: str, n: int) -> AnyFlow:
    return fl.from_items(list(_make_rows(form, n)))


def _from_range(form: str, n: int) -> AnyFlow:
    return fl.from_range(n).map(partial(make, form))


def _from_iterable(form: str, n: int) -> AnyFlow:
    return fl.from_iterable(partial(_make_rows, form, n))


def _from_lmdb(form: str, n: int) -> AnyFlow:
    kinds: dict[str, Any] = {"named": type(make("named", 0)), "record": type(make("record", 0))}
    path = _lmdb(form, n)
    return fl.from_lmdb(path, kinds[form]) if form in kinds else fl.from_lmdb(path)


SOURCES: dict[str, Callable[[str, int], AnyFlow]] = {
    "from_items": _from_items,
    "from_range": _from_range,
    "from_iterable": _from_iterable,
    "from_lmdb": _from_lmdb,
}


@st.composite
def sources(draw: st.DrawFn, name: str | None = None) -> Recipe:
    name = name or draw(st.sampled_from(sorted(SOURCES)))
    form = draw(st.sampled_from(FORMS))
    n = draw(st.integers(0, MOST_ROWS))
    return Recipe(SOURCES[name](form, n), form, (f"{name}({n} {form})",))


# -- operators ---------------------------------------------------------------------------------

_seeds = st.integers(0, 3)


def _map(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    if draw(st.integers(0, 4)) == 0:
        bad = draw(st.integers(0, MOST_ROWS))
        return recipe.then(f"map(fail on {bad})", lambda f, _: f.map(partial(_fail_on, bad)))
    return recipe.then("map(scale)", lambda f, _: f.map(_scale))


def _starmap(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    if recipe.form not in ("tuple", "named") or "list" in str(recipe.names):
        return _map(draw, recipe)
    return recipe.then("starmap", lambda f, _: f.starmap(_unstar))


def _random_map(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    seed = draw(_seeds)
    return recipe.then(f"random_map({seed})", lambda f, _: f.random_map(_noise, seed))


def _filter(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    if Endless in recipe.build().effects:  # a filter that keeps nothing of it would never end
        return _map(draw, recipe)
    modulus, rest = draw(st.tuples(st.integers(1, 3), st.integers(0, 2)))
    return recipe.then(
        f"filter({modulus}, {rest})", lambda f, _: f.filter(partial(_keep, modulus, rest))
    )


def _batch(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    n, drop, as_list = draw(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()))
    name = f"batch({n}{', drop' * drop}{', list' * as_list})"
    if as_list:
        return recipe.then(name, lambda f, _: f.batch(n, drop_remainder=drop, collate=list))
    return recipe.then(name, lambda f, _: f.batch(n, drop_remainder=drop))


def _take(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    n = draw(st.integers(0, 20))
    return recipe.then(f"take({n})", lambda f, _: f.take(n))


def _repeat(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    n = draw(st.integers(1, 3))
    return recipe.then(f"repeat({n})", lambda f, _: f.repeat(n))


def _repeat_forever(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    if recipe.build().node.length == 0:
        return _repeat(draw, recipe)
    return recipe.then("repeat()", lambda f, _: f.repeat())


def _shuffle(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    if recipe.build().node.length is None:
        return _window_shuffle(draw, recipe)
    seed = draw(_seeds)
    return recipe.then(f"shuffle({seed})", lambda f, _: f.shuffle(seed=seed))


def _window_shuffle(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    buffer, seed = draw(st.integers(1, 6)), draw(_seeds)
    return recipe.then(f"shuffle({buffer}, {seed})", lambda f, _: f.shuffle(buffer, seed=seed))


def _prefetch(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    return recipe.then("prefetch", lambda f, procs: f.prefetch(procs=procs))


OPERATORS: dict[str, Callable[[st.DrawFn, Recipe], Recipe]] = {
    "Map": _map,
    "StarMap": _starmap,
    "RandomMap": _random_map,
    "Filter": _filter,
    "Batch": _batch,
    "Take": _take,
    "Repeat": _repeat,
    "RepeatForever": _repeat_forever,
    "Shuffle": _shuffle,
    "WindowShuffle": _window_shuffle,
    "Prefetch": _prefetch,
}


@st.composite
def chains(
    draw: st.DrawFn, most: int = 5, last: str | None = None, prefetched: bool = False
) -> Recipe:
    """A random source and up to ``most`` random operators, ending with ``last`` and a prefetch."""
    recipe = draw(sources())
    for name in draw(st.lists(st.sampled_from(sorted(OPERATORS)), max_size=most)):
        recipe = OPERATORS[name](draw, recipe)
    if last is not None:
        recipe = OPERATORS[last](draw, recipe)
    return _prefetch(draw, recipe) if prefetched else recipe

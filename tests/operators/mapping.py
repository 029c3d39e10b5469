"""Random recipes of operators on single elements, with their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import dropwhile, takewhile
from typing import Any

import numpy as np
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.effects import Unsized
from flowdsl.testing import Draw, Model, Recipe, models
from flowdsl.testing.elements import Named, Row, parts_of, rebuilt, with_data
from flowdsl.testing.functions import scale
from flowdsl.testing.model import Failed
from flowdsl.testing.operators import MODULI, NUMBERS, SEEDS, all_are, map_
from tests import functions


def starmap(draw: Draw, recipe: Recipe) -> Recipe:
    if not all_are(recipe, tuple):
        return map_(draw, recipe)
    pair = all(len(x) == 2 for x in recipe.first)
    func: Any = draw(st.sampled_from([Named, Row, functions.unstar])) if pair else functions.unstar
    return recipe.then(
        f"starmap({func.__name__})",
        lambda f, _: f.starmap(func),
        lambda m: starmap_model(m, func),
        reshapes=True,
    )


def starmap_model(source: Model, func: Callable[..., Any]) -> Model:
    return models.map_(source, lambda x: func(*x))


def filter_map(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.endless:
        return map_(draw, recipe)
    func = partial(functions.keep_scaled, *draw(MODULI))
    return recipe.then(
        f"filter_map{func.args}",
        lambda f, _: f.filter_map(func),
        lambda m: models.filter_map(m, func),
        filters=True,
    )


def map_component(draw: Draw, recipe: Recipe) -> Recipe:
    index: Any
    names = _names(recipe)
    if names and (not all_are(recipe, tuple) or draw(st.booleans())):
        index = draw(st.sampled_from(names))
    elif all_are(recipe, tuple):
        sizes = [len(x) for x in recipe.first]
        index = draw(st.integers(-min(sizes), min(sizes) - 1))
    else:
        return map_(draw, recipe)
    return recipe.then(
        f"map_component({index!r})",
        lambda f, _: f.map_component(scale, index),
        lambda m: map_component_model(m, scale, index),
        reshapes=True,
    )


def _names(recipe: Recipe) -> list[str]:
    """Return the names of components that all elements have."""
    every = [[name for name, _ in parts_of(x) or ()] for x in recipe.first]
    common = set(every[0]).intersection(*every) if every else set()
    return sorted(name for name in common if isinstance(name, str))


def map_component_model(source: Model, func: Callable[[Any], Any], index: Any) -> Model:
    def change(x: Any) -> Any:
        parts = parts_of(x) or ()
        names, values = [name for name, _ in parts], [value for _, value in parts]
        place = names.index(index) if isinstance(index, str) else index
        values[place] = func(values[place])
        return rebuilt(x, values)

    return models.map_(source, change)


def augment(draw: Draw, recipe: Recipe) -> Recipe:
    index, seed = draw(st.integers(0, 1)), draw(SEEDS)
    name = _array_name(recipe.first[0], index) if recipe.first else None
    if name is None or any(_array_name(x, index) != name for x in recipe.first):
        return map_(draw, recipe)
    images: Any = index if isinstance(recipe.first[0], np.ndarray | tuple) else name
    return recipe.then(
        f"augment({images!r}, {seed})",
        lambda f, _: f.augment(functions.Light(), images=images, seed=seed),
        lambda m: augment_model(m, index, name, seed),
    )


def _array_name(element: Any, index: int) -> Any:
    """The name of the array in the component with this number; None if it is not an array."""
    parts = [(0, element)] if isinstance(element, np.ndarray) else parts_of(element)
    if parts is None or isinstance(element, list) or len(parts) <= index:
        return None
    name, part = parts[index]
    return name if isinstance(part, np.ndarray) and part.ndim else None


def augment_model(source: Model, index: int, name: Any, seed: int) -> Model:
    def change(x: Any, rng: np.random.Generator) -> Any:
        if _array_name(x, index) != name:
            raise Failed
        by = rng.random()
        if isinstance(x, np.ndarray):
            return with_data(x, lambda data: data + by)
        values = [part for _, part in parts_of(x) or ()]
        values[index] = with_data(values[index], lambda data: data + by)
        return rebuilt(x, values)

    return models.random_map(source, change, seed)


_COMPONENTS: tuple[Any, ...] = (fl.c0, fl.c1, fl.c2, fl.c3)


def select(draw: Draw, recipe: Recipe) -> Recipe:
    picks: list[Any]
    ours: list[Any]
    names = _names(recipe)
    if names and (not all_are(recipe, tuple) or draw(st.booleans())):
        picks = ours = draw(st.permutations(names))[: draw(NUMBERS)]
        name = ", ".join(picks)
    elif all_are(recipe, tuple):
        some = range(min(4, *(len(x) for x in recipe.first)))
        chosen = draw(st.permutations(some))[: draw(NUMBERS)]
        picks = [_COMPONENTS[i] for i in chosen]
        ours = [lambda x, i=i: x[i] for i in chosen]
        name = ", ".join(f"c{i}" for i in chosen)
    else:
        picks = ours = [functions.count, functions.itself]
        name = "count, itself"
    return recipe.then(
        f"select({name})",
        lambda f, _: f.select(*picks),
        lambda m: select_model(m, *ours),
        reshapes=True,
        omits=True,
        loses_marks=True,
    )


def select_model(source: Model, *picks: Any) -> Model:
    if isinstance(picks[0], str):
        return models.map_(source, lambda x: {key: dict(parts_of(x) or ())[key] for key in picks})
    return models.map_(source, lambda x: tuple([pick(x) for pick in picks]))


def inspect(draw: Draw, recipe: Recipe) -> Recipe:
    num = draw(st.integers(0, 2))
    return recipe.then(
        f"inspect({num})", lambda f, _: f.inspect(num, max_depth=0), lambda m: m.may_fail()
    )


def scan(draw: Draw, recipe: Recipe) -> Recipe:
    return recipe.then("scan", lambda f, _: f.scan(functions.counted, [0]), scan_model)


def scan_model(source: Model) -> Model:
    source = source.without_bad()

    def scanned(epoch: int) -> Iterator[tuple[int, Any]]:
        counts = [0]
        for i, x in source.rows(epoch):
            counts, y = functions.counted(counts, x)
            yield i, y

    return source.then(scanned, source.length)


def take_while(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.endless:
        return map_(draw, recipe)
    keep = partial(functions.below, draw(st.integers(0, 30)))
    return recipe.then(
        f"take_while{keep.args}",
        lambda f, _: f.take_while(keep),
        lambda m: take_while_model(m, keep),
        filters=True,
    )


def take_while_model(source: Model, keep: Callable[[Any], bool]) -> Model:
    source = source.without_bad()
    return source.then(
        lambda epoch: takewhile(lambda row: keep(row[1]), source.rows(epoch)), None, Unsized
    ).selected_by_position()


def skip_while(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.endless:
        return map_(draw, recipe)
    skip = partial(functions.below, draw(st.integers(0, 30)))
    return recipe.then(
        f"skip_while{skip.args}",
        lambda f, _: f.skip_while(skip),
        lambda m: skip_while_model(m, skip),
        filters=True,
    )


def skip_while_model(source: Model, skip: Callable[[Any], bool]) -> Model:
    source = source.without_bad()
    return source.then_renumbered(
        lambda epoch: dropwhile(skip, source.elements(epoch)), None, Unsized
    ).selected_by_position()

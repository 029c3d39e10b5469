"""Random operators on one flow: each adds an operator to a flow and to the flow's model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from flowdsl.errors import InvalidFlow
from flowdsl.testing import functions, models
from flowdsl.testing.catalogue import Draw
from flowdsl.testing.elements import is_text, parts_of
from flowdsl.testing.recipes import AnyFlow, Recipe

# -- each element by itself ------------------------------------------------------------------------

SEEDS = st.integers(0, 3)
NUMBERS = st.integers(1, 4)


def map_(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a map; sometimes its function fails, or returns elements of varying shapes."""
    choice = draw(st.integers(0, 11))
    if choice == 0:
        return map_failing(recipe, a_row(draw, recipe))
    if choice == 1:
        return map_ragged(recipe)
    return recipe.then(
        "map(scale)", lambda f, _: f.map(functions.scale), lambda m: models.map_(m, functions.scale)
    )


def map_failing(recipe: Recipe, bad: int) -> Recipe:
    """Add a map whose function fails on one row."""
    func = partial(functions.fail_on, bad)
    return recipe.then(
        f"map(fail on {bad})", lambda f, _: f.map(func), lambda m: models.map_(m, func)
    )


def a_row(draw: Draw, recipe: Recipe) -> int:
    """Draw the number of a row that may be in the flow."""
    return draw(st.sampled_from([0, *(i for part in recipe.parts for i in part.ids)]))


def map_ragged(recipe: Recipe) -> Recipe:
    """Add a map whose results differ in shape."""
    return recipe.then(
        "map(ragged)",
        lambda f, _: f.map(functions.ragged),
        lambda m: models.map_(m, functions.ragged),
        ragged=True,
        filters=recipe.is_reshaped,
    )


def all_are(recipe: Recipe, kind: type) -> bool:
    """Return True if there are elements, and all are instances of a type."""
    return bool(recipe.first) and all(isinstance(x, kind) for x in recipe.first)


def may_be(recipe: Recipe, kind: type) -> bool:
    """Return True if elements may be instances of a type, also if all elements fail."""
    return not recipe.first or any(isinstance(x, kind) for x in recipe.first)


def random_map(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a random map."""
    seed = draw(SEEDS)
    return recipe.then(
        f"random_map({seed})",
        lambda f, _: f.random_map(functions.noise, seed),
        lambda m: models.random_map(m, functions.noise, seed),
    )


MODULI = st.tuples(st.sampled_from([2, 3, 4, 5, 1]), st.integers(0, 2))


def filter_(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a filter that leaves out rows by their marks."""
    if recipe.endless:  # a filter that keeps nothing would never end
        return map_(draw, recipe)
    keep = partial(functions.keep, *draw(MODULI))
    return recipe.then(
        f"filter{keep.args}",
        lambda f, _: f.filter(keep),
        lambda m: models.filter_(m, keep),
        filters=True,
    )


def flat_map(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a flat map that yields several elements, none, or an error after the first."""
    least = 0 if recipe.endless else draw(st.integers(-1, 0))
    func: Any = partial(functions.burst, least)
    if draw(st.integers(0, 7)) == 0:
        func = partial(functions.broken_burst, a_row(draw, recipe))
    return recipe.then(
        f"flat_map({func.func.__name__} {func.args[0]})",
        lambda f, _: f.flat_map(func),
        lambda m: models.flat_map(m, func),
        filters=least < 0,
        loses_marks=True,
    )


def enumerate_(draw: Draw, recipe: Recipe) -> Recipe:
    """Add an enumerate."""
    start = draw(st.integers(0, 3))
    return recipe.then(
        f"enumerate({start})",
        lambda f, _: f.enumerate(start),
        lambda m: models.enumerate_(m, start),
        reshapes=True,
    )


# -- groups ----------------------------------------------------------------------------------------


def shapes(element: Any) -> Any:
    """Return the properties that elements must share to be stacked."""
    parts = parts_of(element)
    if parts is not None:
        return type(element), [(name, shapes(part)) for name, part in parts]
    if isinstance(element, list):
        return ("text",) if is_text(element) else ("list", type(element[0]), len(element))
    return type(element), getattr(element, "dtype", None), np.shape(element)


def structure_of(element: Any) -> Any:
    """Return the properties that elements must share to be padded."""
    parts = parts_of(element)
    if parts is not None:
        return type(element), [(name, structure_of(part)) for name, part in parts]
    if isinstance(element, list):
        return ("text",) if is_text(element) else ("list", type(element[0]))
    return type(element), getattr(element, "dtype", None), np.ndim(element)


def alike(recipe: Recipe, key: Callable[[Any], Any]) -> bool:
    """Return True if the first elements have one ``key``, such as ``shapes``, and no lists."""
    keys = [key(x) for x in recipe.first]
    return bool(keys) and all(k == keys[0] for k in keys) and not contains_type(keys[0], list)


def contains_type(kind: Any, form: type) -> bool:
    """Return True if a type occurs anywhere in the result of ``shapes`` or ``structure_of``."""
    if isinstance(kind, tuple | list):
        return any(contains_type(part, form) for part in kind)
    return kind is form


def batch(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a batch; of lists, if the elements cannot be stacked."""
    if recipe.has_large_elements:
        return take(draw, recipe)
    n, drop, as_list = draw(st.tuples(NUMBERS, st.booleans(), st.booleans()))
    as_list = as_list or not alike(recipe, shapes)
    if as_list:
        return recipe.then(
            f"batch({n}{', drop' * drop}, list)",
            lambda f, _: f.batch(n, drop_remainder=drop, collate=list),
            lambda m: models.groups(m, n, drop, list),
            reshapes=True,
            ragged=True,
            omits=drop,
        )
    return recipe.then(
        f"batch({n}{', drop' * drop})",
        lambda f, _: f.batch(n, drop_remainder=drop),
        lambda m: models.groups(m, n, drop, models.stacked),
        reshapes=True,
        omits=drop,
    )


# -- number of elements ----------------------------------------------------------------------------


def take(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a take."""
    n = draw(st.integers(0, 30))
    return recipe.then(
        f"take({n})", lambda f, _: f.take(n), lambda m: models.take(m, n), omits=True
    )


def skip(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a skip."""
    n = draw(st.integers(0, 8))
    return recipe.then(
        f"skip({n})", lambda f, _: f.skip(n), lambda m: models.skip(m, n), omits=True
    )


def repeat(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a repeat of several passes."""
    if recipe.has_many_elements:
        return take(draw, recipe)
    n = draw(st.integers(0, 3))
    return recipe.then(
        f"repeat({n})",
        lambda f, _: f.repeat(n),
        lambda m: models.repeat(m, n),
        repeats=True,
        omits=n == 0,
    )


def repeat_forever(draw: Draw, recipe: Recipe) -> Recipe:
    """Add an endless repeat."""
    if recipe.flow.node.length == 0:
        return repeat(draw, recipe)
    return recipe.then("repeat()", lambda f, _: f.repeat(), models.repeat, repeats=True)


# -- order -----------------------------------------------------------------------------------------


def shuffle(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a shuffle, sometimes of blocks; within a buffer, if the length is unknown."""
    if recipe.flow.node.length is None:
        return window_shuffle(draw, recipe)
    seed, block = draw(SEEDS), draw(st.sampled_from([1, 1, 2, 3, 7]))
    again = draw(st.booleans())
    return recipe.then(
        f"shuffle({seed}, block={block}, reshuffle={again})",
        lambda f, _: f.shuffle(seed=seed, block=block, reshuffle=again),
        lambda m: models.shuffle(m, seed, block, again),
    )


def window_shuffle(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a shuffle within a buffer."""
    buffer, seed, again = draw(st.integers(1, 6)), draw(SEEDS), draw(st.booleans())
    return recipe.then(
        f"shuffle({buffer}, {seed}, reshuffle={again})",
        lambda f, _: f.shuffle(buffer, seed=seed, reshuffle=again),
        lambda m: models.window_shuffle(m, buffer, seed, again),
    )


def cache(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a cache."""
    if recipe.endless:
        return take(draw, recipe)
    return recipe.then("cache", lambda f, _: f.cache(), models.cache)


def prefetch(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a prefetch in processes."""
    return recipe.with_prefetch(len(recipe.steps))


def threads(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a prefetch in threads."""
    return recipe.with_prefetch(len(recipe.steps), threads=True)


def on_error(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a prefetch that skips failed elements."""
    if recipe.never_ends:  # if all its elements fail, no pass over it ends
        return prefetch(draw, recipe)
    if draw(st.booleans()):
        recipe = map_failing(recipe, a_row(draw, recipe))
    return skip_bad(draw, recipe)


def skip_bad(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a prefetch that skips failed elements, if the flow may have fewer elements there."""
    if not can_skip(recipe):
        return prefetch(draw, recipe)
    threads = draw(st.booleans())

    def chain(flow: AnyFlow, n: int) -> AnyFlow:
        if threads:
            return flow.prefetch(threads=n, on_error="skip")
        return flow.prefetch(procs=n, on_error="skip")

    return recipe.then(
        f"prefetch({'threads, ' * threads}skip)",
        chain,
        lambda m: models.skip_bad(recipe.model(failures_as_bad=True), m.failures_as_bad),
        omits=True,
    )


def can_skip(recipe: Recipe) -> bool:
    """Return True unless an operator above a batch needs the number of rows."""
    try:
        recipe.flow.prefetch(on_error="skip")
    except InvalidFlow:
        return False
    return True

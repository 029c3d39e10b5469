"""Random recipes of windows, with their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.testing import Draw, Model, Recipe, models
from flowdsl.testing.operators import NUMBERS, alike, shapes, take
from tests import functions

_REMAINDERS = st.sampled_from(["drop", "keep", "fill"])


def window(draw: Draw, recipe: Recipe) -> Recipe:
    return _windows(draw, recipe, draw(_REMAINDERS), stacks=False)


def stacked_window(draw: Draw, recipe: Recipe) -> Recipe:
    return _windows(draw, recipe, draw(_REMAINDERS), alike(recipe, shapes))


def window_by_key(draw: Draw, recipe: Recipe) -> Recipe:
    stacks = draw(st.booleans()) and alike(recipe, shapes)
    return _windows(draw, recipe, draw(_REMAINDERS), stacks, functions.some_key)


def _windows(
    draw: Draw,
    recipe: Recipe,
    remainder: str,
    stacks: bool,
    key: Callable[[Any], Any] | None = None,
) -> Recipe:
    if recipe.has_large_elements:
        return take(draw, recipe)
    size, stride, dilation = draw(st.tuples(NUMBERS, NUMBERS, st.sampled_from([1, 2, 3])))
    arguments: dict[str, Any] = {"dilation": dilation, "remainder": remainder, "stack": stacks}

    def chained(flow: Any, _: int) -> Any:
        windows = flow.window(size, stride, **arguments, key=key)
        real = functions.real_rows if stacks else functions.real_elements
        return windows.map(real) if remainder == "fill" else windows

    def model(source: Model) -> Model:
        gather: Any = models.stacked if stacks else list if remainder == "fill" else tuple
        found = window_model(source, size, stride, dilation, remainder != "drop", gather, key)
        return found.at_depth(found.depth + 1) if remainder == "fill" else found  # two operators

    words = (f"{name}={value}" for name, value in arguments.items())
    return recipe.then(
        f"window({size}, {stride}, {', '.join(words)}{', key' * (key is not None)})",
        chained,
        model,
        reshapes=True,
        ragged=remainder != "drop",
        omits=True,
    )


def window_model(
    source: Model,
    size: int,
    stride: int,
    dilation: int,
    keep: bool,
    gather: Callable[[list[Any]], Any],
    key: Callable[[Any], Any] | None,
) -> Model:
    """Windows as slices of all elements of a key, each at the last element that it has."""
    source = source.without_bad()
    span = (size - 1) * dilation + 1

    def windows(epoch: int) -> Iterator[Any]:
        streams: list[tuple[Any, list[Any], list[int]]] = []
        for number, x in enumerate(source.elements(epoch)):
            its = None if key is None else key(x)
            found = next(((seen, numbers) for k, seen, numbers in streams if k == its), None)
            seen, numbers = found or ([], [])
            if found is None:
                streams.append((its, seen, numbers))
            seen.append(x)
            numbers.append(number)
            before = len(seen) - span
            if before >= 0 and before % stride == 0:
                yield gather(seen[before::dilation])
        rest = list[tuple[int, list[Any]]]()  # the shorter windows, and their first elements
        for _, seen, numbers in streams if keep else []:
            shorter = [b for b in range(0, len(seen), stride) if b + span > len(seen)]
            rest += [(numbers[shorter[0]], seen[b::dilation]) for b in shorter]
        for _, window in sorted(rest, key=lambda pair: pair[0]):
            yield gather(window)

    if key is not None:
        return source.then_renumbered(windows, None, Reordered, Resampled, Unsized)
    rows, needed = source.length, 1 if keep else span
    whole = None if rows is None else len(range(0, rows - needed + 1, stride))
    return source.then_renumbered(windows, whole, Resampled)

"""Random recipes of operators on groups of elements, with their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.testing import Draw, Failed, Model, Recipe, models
from flowdsl.testing.elements import Named, Row, RowBatch, is_text, leaves, parts_of
from flowdsl.testing.operators import (
    NUMBERS,
    alike,
    batch,
    contains_type,
    map_ragged,
    shapes,
    structure_of,
    take,
)
from tests import functions

MAX_SIZE = 1000
"""A length that no first axis of a drawn element exceeds."""


def filled_batch(draw: Draw, recipe: Recipe) -> Recipe:
    """Fill batches, and cut them again: what fills a batch repeats the marks of a row."""
    if recipe.has_large_elements:
        return take(draw, recipe)
    n, as_list = draw(st.tuples(NUMBERS, st.booleans()))
    as_list = as_list or not alike(recipe, shapes)
    gather: Any = list if as_list else models.stacked

    def model(source: Model) -> Model:
        cut = models.groups(source, n, False, gather).may_fail()
        return cut.at_depth(cut.depth + 1)  # of two operators

    options: dict[str, Any] = {"collate": list} if as_list else {}
    return recipe.then(
        f"batch({n}, remainder='fill'{', list' * as_list})",
        lambda f, _: f.batch(n, remainder="fill", **options).map(functions.real_rows),
        model,
        reshapes=True,
        ragged=True,
    )


def padded_batch(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.has_large_elements:
        return take(draw, recipe)
    if draw(st.booleans()):
        recipe = map_ragged(recipe)
    if not alike(recipe, structure_of):
        return batch(draw, recipe)
    n, drop = draw(st.tuples(NUMBERS, st.booleans()))
    padding = _padding(draw, recipe.first[0])
    length = draw(st.sampled_from([None, MAX_SIZE]))
    return recipe.then(
        f"padded_batch({n}{', drop' * drop}, {padding}, {length})",
        lambda f, _: f.padded_batch(n, drop_remainder=drop, padding=padding, length=length),
        lambda m: models.groups(m, n, drop, padded(padding, length)),
        reshapes=True,
        omits=drop,
    )


def _padding(draw: Draw, element: Any) -> Any:
    parts = parts_of(element)
    if parts is None or draw(st.booleans()):
        return draw(st.sampled_from([0, -1, -2]))
    values = [_padding(draw, part) for _, part in parts]
    by_name = type(element) is dict or (type(element) is not tuple and draw(st.booleans()))
    if by_name:
        return {name: value for (name, _), value in zip(parts, values, strict=True)}
    return tuple(values)


def padded(padding: Any, length: int | None = None) -> models.Gather:
    """``padding`` is one value for all components, or one for each, structured as the element."""
    return lambda group: _padded(group, padding, length)


def _padded(group: list[Any], padding: Any, length: int | None = None) -> Any:
    parts = parts_of(group[0])
    if parts is not None:
        names = [name for name, _ in parts]
        columns = [[dict(parts_of(x) or ())[name] for x in group] for name in names]
        each = [padding] * len(names)
        if isinstance(padding, tuple):
            each = list(padding)
        elif isinstance(padding, dict):
            each = [padding[str(name)] for name in names]
        return models.batch_of(
            group[0], [_padded(c, p, length) for c, p in zip(columns, each, strict=True)]
        )
    if is_text(group[0]):
        return list(group)
    rows = [np.asarray(x) for x in group]
    if padding is not None and rows[0].ndim:
        largest = np.max([row.shape for row in rows], axis=0)
        largest[0] = largest[0] if length is None else length
        rows = [
            np.pad(
                row,
                [(0, most - size) for most, size in zip(largest, row.shape, strict=True)],
                constant_values=padding,
            )
            for row in rows
        ]
    return models.of_one_dtype(rows, np.stack)


def batch_by_shape(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.has_large_elements:
        return take(draw, recipe)
    if draw(st.booleans()):
        recipe = map_ragged(recipe)
    n, drop, as_list = draw(st.tuples(NUMBERS, st.booleans(), st.booleans()))
    kinds = {repr(np.shape(functions.first_array(x))): shapes(x) for x in recipe.first}
    agree = all(kinds[repr(np.shape(functions.first_array(x)))] == shapes(x) for x in recipe.first)
    if (
        as_list
        or not agree
        or not kinds
        or any(contains_type(kind, list) for kind in kinds.values())
    ):
        return recipe.then(
            f"batch_by_shape({n}{', drop' * drop}, list)",
            lambda f, _: f.batch_by_shape(
                n, functions.first_array, drop_remainder=drop, collate=list
            ),
            lambda m: batch_by_shape_model(m, n, functions.first_array, drop, list),
            reshapes=True,
            ragged=True,
            omits=drop,
        )
    return recipe.then(
        f"batch_by_shape({n}{', drop' * drop})",
        lambda f, _: f.batch_by_shape(n, functions.first_array, drop_remainder=drop),
        lambda m: batch_by_shape_model(m, n, functions.first_array, drop, models.stacked),
        reshapes=True,
        omits=drop,
    )


def batch_by_key(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.has_large_elements:
        return take(draw, recipe)
    n, drop, as_list = draw(st.tuples(NUMBERS, st.booleans(), st.booleans()))
    as_list = as_list or not alike(recipe, shapes)
    options: dict[str, Any] = {"collate": list} if as_list else {}
    gather: models.Gather = list if as_list else models.stacked
    return recipe.then(
        f"batch_by_key({n}{', drop' * drop}{', list' * as_list})",
        lambda f, _: f.batch_by_key(n, functions.some_key, drop_remainder=drop, **options),
        lambda m: by_key_model(
            m, functions.some_key, lambda key, group: len(group) == n, drop, gather
        ),
        reshapes=True,
        ragged=as_list,
        omits=drop,
    )


def bucket_by_length(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.has_large_elements:
        return take(draw, recipe)
    if draw(st.booleans()):
        recipe = map_ragged(recipe)
    boundaries = draw(st.sampled_from([[], [2], [1, 3]]))
    sizes = draw(st.lists(NUMBERS, min_size=len(boundaries) + 1, max_size=len(boundaries) + 1))
    most = draw(st.sampled_from([None, functions.MAX_LENGTH, 9]))
    drop, as_list = draw(st.tuples(st.booleans(), st.booleans()))
    as_list = as_list or not alike(recipe, structure_of)
    options: dict[str, Any] = {"collate": list} if as_list else {}
    gather: models.Gather = list if as_list else padded(0)
    length = functions.some_length

    def bucket(x: Any) -> int:
        return sum(length(x) >= boundary for boundary in boundaries)

    def is_full(key: int, group: list[Any]) -> bool:
        return len(group) == sizes[key]

    def fits(group: list[Any]) -> bool:
        return most is None or len(group) * max(map(length, group)) <= most

    return recipe.then(
        f"bucket_by_length({boundaries}, {sizes}, {most}{', drop' * drop}{', list' * as_list})",
        lambda f, _: f.bucket_by_length(
            length, boundaries, sizes, max_tokens=most, drop_remainder=drop, **options
        ),
        lambda m: by_key_model(m, bucket, is_full, drop, gather, fits),
        reshapes=True,
        ragged=True,
        omits=drop,
    )


def batch_by_shape_model(
    source: Model, n: int, selector: Callable[[Any], Any], drop: bool, gather: models.Gather
) -> Model:
    def key(x: Any) -> Any:
        return np.shape(selector(x))

    return by_key_model(source, key, lambda _, group: len(group) == n, drop, gather)


def by_key_model(
    source: Model,
    key: Callable[[Any], Any],
    is_full: Callable[[Any, list[Any]], bool],
    drop: bool,
    gather: models.Gather,
    fits: Callable[[list[Any]], bool] = lambda group: True,
) -> Model:
    """Groups of equal keys, in a list that is searched; ``fits`` is asked with the next element."""
    source = source.without_bad()

    def gathered(epoch: int) -> Iterator[Any]:
        waiting: list[tuple[Any, list[Any]]] = []
        for x in source.elements(epoch):
            its = key(x)
            group = next((group for other, group in waiting if other == its), None)
            if group is not None and not fits([*group, x]):
                waiting = [pair for pair in waiting if pair[1] is not group]
                yield gather(group)
                group = None
            if group is None:
                group = []
                waiting.append((its, group))
            group.append(x)
            if is_full(its, group):
                waiting = [pair for pair in waiting if pair[1] is not group]
                yield gather(group)
        if not drop:
            for _, group in waiting:
                yield gather(group)

    return source.then_renumbered(
        gathered, None, Reordered, Unsized, *([Resampled] if drop else [])
    )


def unbatch(draw: Draw, recipe: Recipe) -> Recipe:
    if not recipe.first or not all(map(_splits, recipe.first)):
        recipe = batch(draw, recipe)
        if not recipe.first or not all(map(_splits, recipe.first)):
            return recipe
    into = draw(st.sampled_from([None, *_builders(recipe.first[0])]))
    return recipe.then(
        f"unbatch({into.__name__ if into else ''})",
        lambda f, _: f.unbatch(into),
        lambda m: unbatch_model(m, into),
        reshapes=True,
        loses_marks=True,
    )


def _splits(element: Any) -> bool:
    """Return True if it has rows, and the same number in each component."""
    try:
        unstacked(element)
    except (Failed, TypeError):
        return False
    return all(np.ndim(x) or isinstance(element, list) for x in leaves(element))


def _builders(batch: Any) -> list[Any]:
    """Functions of the components of a row."""
    if isinstance(batch, dict):
        return [functions.dict_of]
    if isinstance(batch, RowBatch):
        return [Row]
    if isinstance(batch, tuple):
        return [Named, Row, functions.unstar] if len(batch) == 2 else [functions.unstar]
    return [functions.itself]


def unbatch_model(source: Model, into: Callable[..., Any] | None = None) -> Model:
    source = source.without_bad()

    def build(batch: Any, row: Any) -> Any:
        if into is None:
            return row
        if isinstance(batch, dict):
            return into(**row)
        if parts_of(batch) is None or isinstance(batch, list):
            return into(row)
        if isinstance(batch, tuple):
            return into(*row)
        return into(**dict(zip(attrs.asdict(batch, recurse=False), row, strict=True)))

    return source.then_renumbered(
        lambda epoch: (build(x, row) for x in source.elements(epoch) for row in unstacked(x)),
        None,
        Unsized,
    )


def unstacked(batch: Any) -> list[Any]:
    parts = parts_of(batch)
    if parts is None or isinstance(batch, list):
        return list(batch)
    columns = [unstacked(part) for _, part in parts]
    if len({len(column) for column in columns}) != 1:
        raise Failed
    if isinstance(batch, dict):
        return [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    named = type(batch) if hasattr(batch, "_fields") else lambda *row: row
    return [named(*row) for row in zip(*columns, strict=True)]

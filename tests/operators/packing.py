"""Random recipes of packing, with a model token by token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from flowdsl import Packed
from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.testing import Draw, Model, Recipe, models
from flowdsl.testing.operators import NUMBERS, take
from tests import functions

STRATEGIES = ("concat", "first_fit", "best_fit")


def pack_concatenated(draw: Draw, recipe: Recipe) -> Recipe:
    return _packed(draw, recipe, "concat")


def pack_whole(draw: Draw, recipe: Recipe) -> Recipe:
    return _packed(draw, recipe, draw(st.sampled_from(STRATEGIES[1:])))


def _packed(draw: Draw, recipe: Recipe, strategy: str) -> Recipe:
    """Pack the marks of each element; a batch is a sequence of several."""
    # endless elements without marks would be endless empty sequences, which fill no row
    if recipe.has_large_elements or (recipe.endless and recipe.loses_marks):
        return take(draw, recipe)
    n, bins, drop = draw(st.tuples(st.sampled_from([7, 9, 4, 1]), NUMBERS, st.booleans()))
    if strategy == "concat":
        options: Any = {"drop_remainder": drop}
    else:
        options = {"drop_remainder": drop, "bins": bins, "too_long": "split"}

    def model(source: Model) -> Model:
        marks = models.map_(source, functions.marks)
        return models.map_(pack_model(marks, n, strategy, bins, drop), functions.unmarked)

    def chain(flow: Any, procs: int) -> Any:
        return flow.map(functions.marks).pack(n, strategy, **options).map(functions.unmarked)

    return recipe.then(
        f"pack({n}, {strategy}, {options})",
        chain,
        model,
        reshapes=True,
        loses_marks=True,  # of a sequence that is cut, each row has some marks
        omits=drop,
    )


def pack_model(source: Model, n: int, strategy: str, bins: int, drop: bool) -> Model:
    source = source.without_bad()

    def rows(epoch: int) -> Iterator[Any]:
        sequences = map(list, source.elements(epoch))
        if strategy == "concat":
            groups = concatenated(sequences, n, drop)
        else:
            groups = fitted(sequences, n, strategy, bins, drop)
        return (row_of(group, n) for group in groups)

    tags = {Unsized, *([Resampled] if drop else []), *([Reordered] if strategy != "concat" else [])}
    return source.then_renumbered(rows, None, *tags)


Group: TypeAlias = list[list[int]]
"""The sequences of a row."""


def concatenated(sequences: Iterable[list[int]], n: int, drop: bool) -> Iterator[Group]:
    group: Group = []
    for sequence in sequences:
        group.append([])
        for token in sequence:
            group[-1].append(token)
            if size(group) == n:
                yield group
                group = [[]]
    if size(group) and not drop:
        yield group


def fitted(
    sequences: Iterable[list[int]], n: int, strategy: str, bins: int, drop: bool
) -> Iterator[Group]:
    groups: list[Group] = []  # the oldest first
    rows = 0
    for sequence in sequences:
        if rows >= 64 * bins:
            yield from groups
            groups, rows = [], 0
        for start in range(0, len(sequence), n):
            part = sequence[start : start + n]
            fits = [group for group in groups if size(group) + len(part) <= n]
            if strategy == "best_fit":
                fits.sort(key=size, reverse=True)
            if not fits:
                if len(groups) == bins:
                    fullest = max(groups, key=size)
                    groups = [group for group in groups if group is not fullest]
                    rows += 1
                    yield fullest
                fits = [[]]
                groups.append(fits[0])
            fits[0].append(part)
            if size(fits[0]) == n:
                groups = [group for group in groups if group is not fits[0]]
                rows += 1
                yield fits[0]
    if not drop:
        yield from groups


def size(group: Group) -> int:
    return sum(map(len, group))


def row_of(group: Group, n: int) -> Packed[Any]:
    """A row, token by token."""
    tokens, segments, positions = np.zeros((3, n), np.int32)
    place = 0
    for number, sequence in enumerate((part for part in group if part), 1):
        for position, token in enumerate(sequence):
            tokens[place], segments[place], positions[place] = token, number, position
            place += 1
    return Packed(tokens, segments, positions)

"""Effects: a flow is accepted where all of its effects are allowed."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl import effects
from flowdsl.effects import (
    TAGS,
    Counted,
    Effect,
    Endless,
    Exact,
    Finite,
    InOrder,
    Reordered,
    Resampled,
    Tag,
    Unsized,
    describe,
)

ROWS = [frozenset(row) for n in range(len(TAGS) + 1) for row in combinations(TAGS, n)]


def test_all_tags_are_listed() -> None:
    written = {v for v in vars(effects).values() if isinstance(v, type) and issubclass(v, Effect)}
    assert written == {Effect, Exact, *TAGS}


def test_exact_fits_wherever_a_tag_is_allowed_and_no_tag_fits_exact() -> None:
    for tag in TAGS:
        assert issubclass(Exact, tag)
        assert not issubclass(tag, Exact)


def test_no_tag_fits_another() -> None:
    for a in TAGS:
        assert [b for b in TAGS if issubclass(a, b)] == [a]
        assert a.__bases__ == (Effect,)


def test_effects_that_consumers_require() -> None:
    def allowed(union: object) -> set[Tag]:
        return {tag for tag in TAGS if issubclass(tag, union)}  # type: ignore[arg-type] # a union

    assert allowed(Counted) == {Reordered, Resampled}
    assert allowed(Finite) == {Reordered, Resampled, Unsized}
    assert allowed(InOrder) == {Unsized, Endless}


@pytest.mark.parametrize("row", ROWS, ids=describe)
def test_describe_equals_the_spelling_of_types(row: frozenset[Tag]) -> None:
    spelled = {getattr(effects, name) for name in describe(row).split(" | ")}
    assert spelled == (row or {Exact})


def test_describe_distinguishes_effects() -> None:
    assert len({describe(row) for row in ROWS}) == len(ROWS)


@given(st.permutations(TAGS))
def test_describe_has_one_order(tags: list[Tag]) -> None:
    assert describe(frozenset(tags)) == "Reordered | Resampled | Unsized | Endless"
    assert describe(frozenset(tags[:2])) == describe(frozenset(reversed(tags[:2])))

"""Strategies handle chains whose first rows fail."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.testing import functions, models
from flowdsl.testing.catalogue import Draw
from flowdsl.testing.combining import concat, zip_
from flowdsl.testing.elements import make
from flowdsl.testing.functions import make_rows
from flowdsl.testing.model import Model
from flowdsl.testing.operators import can_skip, skip_bad
from flowdsl.testing.recipes import AnyFlow, Recipe, Source
from tests.sampling import examples
from tests.strategies import CATALOGUE


@pytest.mark.hypothesis
def test_unreadable_dicts_are_zipped() -> None:
    """A flow knows the keys of unreadable dicts, and refuses duplicates."""
    catalogue = attrs.evolve(CATALOGUE, sizes=st.just(1))

    @st.composite
    def zipped(draw: Draw) -> Recipe:
        return zip_(draw, draw(catalogue.source_recipes("AttemptToRead", "dict")))

    @settings(max_examples=examples(300))
    @given(zipped())
    def check(recipe: Recipe) -> None:
        assert recipe.build()

    check()


def _failing_for(bad: int) -> Recipe:
    rows, func = [make("dict", 0), make("dict", 1)], partial(functions.fail_on, bad)
    failing = Recipe.of("rows", lambda: fl.from_items(rows), lambda: models.rows(rows), "dict")
    return failing.then("map(fail)", lambda f, _: f.map(func), lambda m: models.map_(m, func))


def test_a_failed_row_does_not_hide_later_rows() -> None:
    assert [x["id"] for x in _failing_for(0).first] == [2]


@pytest.mark.timeout(20)
def test_an_endlessly_failing_flow_is_not_waited_for() -> None:
    def one(flow: AnyFlow, procs: int) -> AnyFlow:
        return flow.take(1).repeat().batch(2)

    def one_model(model: Model) -> Model:
        return models.groups(models.repeat(models.take(model, 1)), 2, False, list)

    assert _failing_for(0).then("take(1), repeat(), batch(2)", one, one_model).first == []


def _shuffled(draw: Draw, form: str, first: int, n: int) -> Source:
    items = list(make_rows(form, first, n))
    return Source(lambda: fl.from_items(items).shuffle(), lambda: models.rows(items))


@pytest.mark.hypothesis
def test_a_reordered_source_is_not_zipped() -> None:
    catalogue = attrs.evolve(CATALOGUE, sources={**CATALOGUE.sources, "Shuffled": _shuffled})

    @st.composite
    def zipped(draw: Draw) -> Recipe:
        return zip_(draw, draw(catalogue.source_recipes("FromRange")))

    @settings(max_examples=examples(300))
    @given(zipped())
    def check(recipe: Recipe) -> None:
        assert recipe.build()

    check()


def _numbered(n: int) -> Recipe:
    rows = [make("dict", k) for k in range(n)]
    return Recipe.of("rows", lambda: fl.from_items(rows), lambda: models.rows(rows), "dict")


@pytest.mark.hypothesis
def test_an_endless_flow_is_limited_before_others_follow_it() -> None:
    endless = attrs.evolve(
        _numbered(3).then("repeat()", lambda f, _: f.repeat(), models.repeat, repeats=True),
        catalogue=CATALOGUE,
    )
    assert endless.endless

    @st.composite
    def followed(draw: Draw) -> Recipe:
        return concat(draw, endless)

    @settings(max_examples=examples(20))
    @given(followed())
    def check(recipe: Recipe) -> None:
        assert "repeat() > take(" in str(recipe)

    check()


@pytest.mark.hypothesis
def test_failures_are_not_skipped_where_the_number_of_rows_is_needed() -> None:
    # a shuffle of all batches needs their number, which is unknown if rows are left out
    shuffled = _numbered(5).then(
        "batch(2), shuffle()",
        lambda f, _: f.batch(2).shuffle(),
        lambda m: models.groups(m, 2, False, list),
    )
    assert can_skip(_numbered(5))
    assert not can_skip(shuffled)

    @st.composite
    def skipping(draw: Draw) -> Recipe:
        return skip_bad(draw, shuffled)

    @settings(max_examples=examples(20))
    @given(skipping())
    def check(recipe: Recipe) -> None:
        assert "skip" not in str(recipe)
        assert recipe.build()

    check()

"""Checks every operator against every law, and random chains with every way to run."""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl.ops
import flowdsl.storage
from flowdsl.nodes import IndexedSource, Node
from flowdsl.nodes.frozen import compile_methods
from flowdsl.testing import laws
from flowdsl.testing.catalogue import MAX_ROWS
from flowdsl.testing.laws import LAWS
from flowdsl.testing.recipes import MAX_ELEMENTS, Recipe
from tests.sampling import examples, place
from tests.strategies import BY_THEMSELVES, CATALOGUE, ELSEWHERE, OPERATORS, SOURCES, chains

pytestmark = pytest.mark.slow

# Every position of every chain takes longer than all other laws together: chains are worth more.
two_positions = st.lists(st.integers(0, MAX_ELEMENTS), min_size=2, max_size=2, unique=True)
a_row = st.integers(0, 2 * MAX_ROWS)


def _operators() -> set[type]:
    """Return every node class that can be chained."""
    gc.collect()  # attrs replaces a class with slots, whose first version is freed here
    for package in (flowdsl.ops, flowdsl.storage):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found: set[type] = set()
    waiting: list[type] = [Node]
    while waiting:
        subclasses: list[type] = waiting.pop().__subclasses__()
        for cls in subclasses:
            waiting.append(cls)
            named = cls.__module__.startswith(
                ("flowdsl.ops.", "flowdsl.nodes.failures", "flowdsl.storage.")
            )
            if named and not inspect.isabstract(cls) and not cls.__name__.startswith("_"):
                found.add(cls)
    return found


def _begins(operator: type) -> bool:
    compile_methods(operator)
    fields = {field.name for field in attrs.fields(operator)}
    return issubclass(operator, IndexedSource) or not {"source", "parts"} & fields


def test_no_property_of_a_base_hides_a_field() -> None:
    """It would without slots: a node then reads the property, and not its own argument."""
    for operator in _operators():
        compile_methods(operator)
        for field in attrs.fields(operator):
            assert not isinstance(inspect.getattr_static(operator, field.name, None), property)


def test_every_operator_has_a_strategy() -> None:
    others = [cls for cls in _operators() if cls.__name__ not in BY_THEMSELVES]
    assert {cls.__name__ for cls in others if _begins(cls)} == set(SOURCES)
    chained = {cls.__name__ for cls in others if not _begins(cls)}
    assert chained == set(OPERATORS) - set(ELSEWHERE)


def _keeps_all_laws(recipe: Recipe, row: int, positions: Iterable[int]) -> None:
    for law in LAWS:
        if law is not laws.resuming_anywhere_gives_the_rest:
            law(recipe)
    laws.changing_a_row_changes_exactly_its_elements(recipe, row)
    for position in positions:
        laws.resuming_gives_the_rest(recipe, place(recipe, position))


@pytest.mark.hypothesis
@pytest.mark.usefixtures("workers_are_threads")
@pytest.mark.parametrize("source", SOURCES)
def test_each_source_obeys_the_laws(source: str) -> None:
    @settings(max_examples=examples(40))
    @given(CATALOGUE.source_recipes(source), a_row, two_positions)
    def check(recipe: Recipe, row: int, positions: list[int]) -> None:
        _keeps_all_laws(recipe, row, positions)

    check()


@pytest.mark.hypothesis
@pytest.mark.usefixtures("workers_are_threads")
@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_obeys_the_laws(operator: str) -> None:
    @settings(max_examples=examples(50))
    @given(chains(most=3, last=operator, one_pass=True), a_row, two_positions)
    def check(recipe: Recipe, row: int, positions: list[int]) -> None:
        _keeps_all_laws(recipe, row, positions)

    check()


@settings(max_examples=examples(200))
@given(chains(most=8, one_pass=True))
def test_random_chains_equal_their_models(recipe: Recipe) -> None:
    laws.reference_is_the_model(recipe)
    laws.promises_match_the_model(recipe)
    laws.rows_keep_the_effects(recipe)


@pytest.mark.usefixtures("workers_are_threads")
@settings(max_examples=examples(125))
@given(chains(most=8, one_pass=True), st.integers(0, 2))
def test_plans_keep_the_meaning(recipe: Recipe, epoch: int) -> None:
    laws.planning_keeps_the_meaning(recipe, epoch)
    laws.running_gives_the_reference(recipe, 0, epoch)


@pytest.mark.usefixtures("workers_are_threads")
@settings(max_examples=examples(125))
@given(chains(most=8, one_pass=True), st.integers(0, MAX_ELEMENTS), st.integers(0, 2))
def test_random_chains_resume(recipe: Recipe, position: int, epoch: int) -> None:
    laws.resuming_gives_the_rest(recipe, place(recipe, position, epoch=epoch), epoch=epoch)

"""Every operator through every law, and random chains of operators through every way to run."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl.ops
import flowdsl.storage
from flowdsl.node import Node
from flowdsl.runtime.pool import Pool
from tests import laws
from tests.laws import LAWS
from tests.strategies import MOST_ROWS, OPERATORS, SOURCES, Recipe, chains
from tests.threads import spawn_thread


def _operators() -> set[type]:
    """Every node that can be chained."""
    for package in (flowdsl.ops, flowdsl.storage):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found: set[type] = set()
    waiting: list[type] = [Node]
    while waiting:
        subclasses: list[type] = waiting.pop().__subclasses__()
        for cls in subclasses:
            waiting.append(cls)
            if cls.__module__.startswith(("flowdsl.ops.", "flowdsl.storage.")):
                found.add(cls)
    return found


def test_every_operator_has_a_strategy() -> None:
    sources = {cls.__name__ for cls in _operators() if cls.__name__.startswith("From")}
    names = {"".join(part.title() for part in name.split("_")) for name in SOURCES}
    assert sources == names
    assert {cls.__name__ for cls in _operators()} - sources == set(OPERATORS)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_operator(operator: str, law: Callable[[Recipe], None]) -> None:
    @settings(max_examples=40)
    @given(chains(most=3, last=operator))
    def check(recipe: Recipe) -> None:
        law(recipe)

    check()


@settings(max_examples=1500)
@given(chains(most=6), st.integers(0, 2))
def test_epochs(recipe: Recipe, epoch: int) -> None:
    laws.planning_keeps_the_meaning(recipe, epoch)
    laws.running_gives_the_reference(recipe, 0, epoch)


@settings(max_examples=1500)
@given(chains(most=6), st.integers(0, 2 * MOST_ROWS))
def test_resume(recipe: Recipe, position: int) -> None:
    laws.resuming_gives_the_rest(recipe, position)


@pytest.fixture
def workers_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same leases, messages and slabs, without the time that a process takes to start."""
    monkeypatch.setattr(Pool, "spawn", staticmethod(spawn_thread))


@pytest.mark.usefixtures("workers_are_threads")
class TestLeases:
    @settings(max_examples=1500)
    @given(chains(most=6, prefetched=True), st.integers(1, 4), st.integers(0, 2))
    def test_any_chain(self, recipe: Recipe, procs: int, epoch: int) -> None:
        laws.running_gives_the_reference(recipe, procs, epoch)

    @settings(max_examples=300)
    @given(chains(most=5), st.integers(0, 6), st.integers(1, 3), st.integers(0, 1))
    def test_prefetch_anywhere(self, recipe: Recipe, place: int, procs: int, epoch: int) -> None:
        laws.prefetch_changes_nothing(recipe, place, procs, epoch)

    @settings(max_examples=100)
    @given(chains(most=4, prefetched=True), st.integers(1, 3), st.integers(0, 2 * MOST_ROWS))
    def test_resume(self, recipe: Recipe, procs: int, position: int) -> None:
        laws.resuming_gives_the_rest(recipe, position, procs)


@settings(max_examples=30)
@given(chains(most=6, prefetched=True), st.integers(1, 4))
def test_processes(recipe: Recipe, procs: int) -> None:
    laws.running_gives_the_reference(recipe, procs)

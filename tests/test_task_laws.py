"""Checks every operator and random chains in worker threads and processes, against the laws."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowdsl.testing import laws
from flowdsl.testing.recipes import MAX_ELEMENTS, Recipe
from tests.paces import paced, whims
from tests.sampling import examples, place
from tests.strategies import OPERATORS, chains

pytestmark = pytest.mark.slow

procs = st.integers(0, 4)
few = st.integers(1, 3)
epochs = st.integers(0, 2)
prefetched = chains(most=8, prefetched=True, one_pass=True)


@pytest.mark.usefixtures("workers_are_threads")
class TestTasks:
    @pytest.mark.hypothesis
    @pytest.mark.parametrize("operator", OPERATORS)
    def test_each_operator_obeys_the_laws(self, operator: str) -> None:
        chain = chains(most=2, last=operator, prefetched=True)

        @settings(max_examples=examples(30))
        @given(chain, few, st.integers(0, MAX_ELEMENTS), epochs, whims)
        def check(recipe: Recipe, procs: int, position: int, epoch: int, sizes: list[int]) -> None:
            with paced(sizes):
                laws.running_gives_the_reference(recipe, procs, epoch)
                resumed = place(recipe, position, procs, epoch)
                laws.resuming_gives_the_rest(recipe, resumed, procs, procs, epoch)

        check()

    @settings(max_examples=examples(150))
    @given(prefetched, procs, epochs, whims)
    def test_random_chains_yield_the_reference(
        self, recipe: Recipe, procs: int, epoch: int, sizes: list[int]
    ) -> None:
        with paced(sizes):
            laws.running_gives_the_reference(recipe, procs, epoch)

    @settings(max_examples=examples(100))
    @given(chains(most=5), st.integers(0, 6), st.integers(1, 3), epochs, whims)
    def test_prefetch_anywhere(
        self, recipe: Recipe, place: int, procs: int, epoch: int, sizes: list[int]
    ) -> None:
        with paced(sizes):
            laws.prefetch_changes_nothing(recipe, place, procs, epoch)

    @settings(max_examples=examples(100))
    @given(chains(most=4), few, st.booleans(), epochs, whims)
    def test_unordered_runs_are_permutations(
        self, recipe: Recipe, n: int, in_threads: bool, epoch: int, sizes: list[int]
    ) -> None:
        with paced(sizes):
            procs, threads = (0, n) if in_threads else (n, 0)
            laws.unordered_is_a_permutation(recipe, procs, threads, epoch)

    @settings(max_examples=examples(100))
    @given(prefetched, procs, procs, st.integers(0, MAX_ELEMENTS), epochs, whims)
    def test_random_chains_resume(
        self,
        recipe: Recipe,
        procs: int,
        then_procs: int,
        position: int,
        epoch: int,
        sizes: list[int],
    ) -> None:
        with paced(sizes):
            resumed = place(recipe, position, procs, epoch)
            laws.resuming_gives_the_rest(recipe, resumed, procs, then_procs, epoch)


@settings(max_examples=examples(40))
@given(chains(most=6, prefetched=True, one_pass=True), few, epochs)
def test_random_chains_with_processes(recipe: Recipe, procs: int, epoch: int) -> None:
    laws.running_gives_the_reference(recipe, procs, epoch)


@settings(max_examples=examples(20))
@given(chains(most=5, prefetched=True), few, st.integers(0, 2), st.integers(0, MAX_ELEMENTS))
def test_random_chains_resume_with_processes(
    recipe: Recipe, procs: int, then_procs: int, position: int
) -> None:
    laws.resuming_gives_the_rest(recipe, place(recipe, position, procs), procs, then_procs)

"""``flow.at``: returns the element of a pass at a position."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.effects import Endless
from flowdsl.testing import Recipe
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import outcome
from tests.sampling import examples
from tests.strategies import chains


@settings(max_examples=examples(300))
@given(chains(most=5, prefetched=True), st.integers(0, 2), st.data())
def test_at_equals_the_element_of_a_pass(recipe: Recipe, epoch: int, data: st.DataObject) -> None:
    flow = recipe.build(procs=2)
    if not flow.node.replayable or recipe.is_unordered:
        return
    passed = outcome(x for _, x in recipe.build(procs=2).node.reference(epoch))
    position = data.draw(st.integers(0, len(passed.elements) + 1))
    if position < len(passed.elements):
        assert same(flow.at(position, epoch), passed.elements[position])
    elif passed.ended and passed.error is None:
        with pytest.raises(IndexError, match="at: position"):
            flow.at(position, epoch)


def test_at_computes_only_one_element_of_a_random_access_flow() -> None:
    made: list[int] = []

    def make(i: int) -> int:
        made.append(i)
        return -i

    flow = fl.from_range(10**9).shuffle(seed=3).map(make).batch(3).prefetch(procs=2)
    element = flow.at(10**8)
    assert len(made) == 3
    assert [-i for i in made] == list(element)


@pytest.mark.parametrize("position", range(-5, 5))
def test_negative_positions_count_from_the_end(position: int) -> None:
    flow = fl.from_range(5).map(str)
    assert flow.at(position) == flow.collect()[position]
    same_number: Any = np.int64(position)
    assert flow.at(same_number) == flow.collect()[position]


@pytest.mark.parametrize(
    ("flow", "position", "error", "words"),
    [
        (fl.from_range(5), 5, IndexError, "position 5 is beyond the 5 elements of from_range(5)"),
        (fl.from_range(5), -6, IndexError, "position -6 is beyond the 5 elements"),
        (fl.from_range(5).filter(bool), 4, IndexError, "beyond the 4 elements of filter(bool)"),
        (fl.from_range(5).filter(bool), -1, fl.UnknownLength, "because of filter(bool)"),
        (fl.from_range(5).repeat(), -1, fl.EndlessFlow, "put .take(n) after it"),
        (fl.from_range(5), 1.0, fl.InvalidFlow, "at: position must be an int, got 1.0"),
        (fl.from_range(5), True, fl.InvalidFlow, "at: position must be an int, got True"),
        (fl.from_iterable(iter("ab")), 0, fl.InvalidFlow, "yields its elements only once"),
        (fl.from_range(5).prefetch(threads=1, ordered=False), 0, fl.InvalidFlow, "ordered=True"),
        (fl.from_range(5).map(lambda i: 1 // i), 0, fl.ElementError, "element 0 (row 0"),
    ],
    ids=str,
)
def test_positions_beyond_the_end_are_refused(
    flow: Any, position: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        flow.at(position)


def test_invalid_epochs_are_refused() -> None:
    with pytest.raises(fl.InvalidFlow, match="at: epoch must be an int >= 0"):
        fl.from_range(5).at(0, epoch=-1)


def test_at_has_the_type_of_the_elements() -> None:
    x: str = fl.from_range(5).map(str).at(3)
    assert x == "3"


def test_at_works_on_endless_flows() -> None:
    flow = fl.from_range(5).shuffle().repeat()
    assert Endless in flow.effects
    run = iter(flow)
    assert [flow.at(i) for i in range(12)] == [next(run) for _ in range(12)]

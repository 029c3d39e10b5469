"""map, starmap, random_map, filter: against list comprehensions."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow, InvalidFlow, Unsized

ints = st.lists(st.integers(-100, 100), max_size=20)


def draw(_: int, rng: np.random.Generator) -> int:
    return int(rng.integers(2**60))


@given(ints)
def test_map(items: list[int]) -> None:
    flow = fl.from_items(items).map(lambda x: 3 * x)
    assert flow.collect() == [3 * x for x in items]
    assert len(flow) == len(items)
    assert flow.effects == frozenset()


@given(st.lists(st.tuples(st.integers(), st.text())))
def test_starmap(items: list[tuple[int, str]]) -> None:
    flow = fl.from_items(items).starmap(lambda number, text: f"{text}{number}")
    assert flow.collect() == [f"{text}{number}" for number, text in items]


@given(ints, st.integers(1, 5))
def test_filter(items: list[int], modulus: int) -> None:
    flow = fl.from_items(items).filter(lambda x: np.bool_(x % modulus == 0))
    assert flow.collect() == [x for x in items if x % modulus == 0]
    assert flow.effects == {Unsized}
    assert flow.node.length is None
    kept = [(i, x) for i, x in enumerate(items) if x % modulus == 0]
    assert list(flow.node.rows(0)) == kept  # with the positions that they had


def test_a_function_is_called_once_an_element_and_only_when_asked() -> None:
    seen: list[int] = []

    def note(i: int) -> int:
        seen.append(i)
        return i

    flow = fl.from_range(10).map(note).filter(lambda i: i != 1)
    assert len(flow.node.sources) == 1
    assert seen == []
    run = iter(flow)
    assert list(islice(run, 2)) == [0, 2]
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("method", ["map", "starmap", "filter", "random_map"])
def test_what_a_function_raises_is_the_cause(method: str) -> None:
    def fail(x: Any, *_: object) -> Any:
        if x == 2:
            raise KeyError("k")
        return x

    flow: Flow[Any, Any] = fl.from_items([(0,), (1,), (2,)])
    flow = flow if method == "starmap" else flow.map(lambda t: t[0])
    run = iter(getattr(flow, method)(fail))
    with pytest.raises(ElementError) as caught:
        list(run)
    error = caught.value
    seed = ", seed=0" if method == "random_map" else ""
    assert error.operator == f"{method}(fail{seed})"
    assert (error.position, error.epoch) == (2, 0)
    assert error.origin == "row 2 of from_items(3 items)"
    assert isinstance(error.__cause__, KeyError)


class TestRandomMap:
    flow = fl.from_range(50).random_map(draw)

    def test_draws_the_same_in_the_same_epoch(self) -> None:
        for k in range(3):
            assert list(self.flow.epoch(k)) == list(self.flow.epoch(k))

    def test_draws_afresh_for_each_element_epoch_seed_and_operator(self) -> None:
        pairs = fl.from_range(50).random_map(lambda i, rng: (i, draw(i, rng)))
        flows = [
            self.flow,
            fl.from_range(50).random_map(draw, seed=1),
            pairs.random_map(lambda pair, rng: draw(pair[0], rng)),
        ]
        draws = [x for flow in flows for k in range(3) for x in flow.epoch(k)]
        assert len(set(draws)) == len(draws) == 50 * 3 * 3

    def test_draws_do_not_depend_on_what_else_is_made(self) -> None:
        whole = self.flow.collect()
        assert self.flow.take(7).collect() == whole[:7]
        kept = fl.from_range(50).filter(lambda i: i % 5 == 3).map(lambda i: i).random_map(draw)
        again = fl.from_range(50).filter(lambda i: i % 5 < 4).map(lambda i: i).random_map(draw)
        assert set(kept.collect()) < set(again.collect())

    def test_draws_are_those_of_every_release(self) -> None:
        def raw(_: int, rng: np.random.Generator) -> int:
            return int(rng.bit_generator.random_raw())

        flow = fl.from_range(2).random_map(raw, seed=7)
        assert [*flow, *flow.epoch(1)] == GOLDEN

    def test_gives_each_element_its_own_generator(self) -> None:
        def spend(i: int, rng: np.random.Generator) -> int:
            rng.random(i)
            return draw(i, rng)

        first = [next(iter(fl.from_range(1).random_map(spend)))]
        assert fl.from_range(3).random_map(spend).collect()[:1] == first

    @pytest.mark.parametrize("seed", [-1, 0.5, True])
    def test_refuses_a_seed(self, seed: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).random_map(draw, seed=seed)
        assert str(caught.value) == f"random_map: seed must be an int >= 0, got {seed!r}"


GOLDEN = [
    11915120571355287533,
    9065023645967449663,
    16340543560394862429,
    4660295322256207835,
]


@pytest.mark.parametrize("method", ["map", "starmap", "random_map", "filter"])
def test_refuses_what_can_not_be_called(method: str) -> None:
    flow: Any = fl.from_range(3)
    with pytest.raises(InvalidFlow) as caught:
        getattr(flow, method)(3)
    argument = "keep" if method == "filter" else "func"
    assert str(caught.value) == f"{method}: {argument} must be callable, got 3"


class TestSpec:
    def test_is_what_the_function_declares(self) -> None:
        def declared(i: int) -> float:
            raise AssertionError("not asked")

        def drawn(i: int, rng: np.random.Generator) -> float:
            raise AssertionError("not asked")

        assert str(fl.from_range(3).map(declared).spec) == "float"
        assert str(fl.from_range(3).random_map(drawn).spec) == "float"
        assert str(fl.from_items([(1,)]).starmap(declared).spec) == "float"

    def test_is_that_of_an_element_where_nothing_is_declared(self) -> None:
        flow = fl.from_range(3).map(lambda i: np.zeros((2, 3), np.uint8))
        assert str(flow.spec) == "uint8[2, 3]"
        assert str(flow.node.spec(probe=False)) == "?"
        assert str(fl.from_range(3).random_map(lambda i, rng: rng.random()).spec) == "float"
        assert str(fl.from_items([(1, 2)]).starmap(max).spec) == "int"

    def test_of_a_filter_is_its_sources(self) -> None:
        assert str(fl.from_range(3).filter(bool).spec) == "int"

"""Lowering: which operators run together, where, and what travels to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import Flow
from flowdsl.node import AnyNode
from flowdsl.plan.lower import Stage, Supplied, lower
from flowdsl.plan.optimize import optimize
from flowdsl.plan.tree import walk
from tests.elements import same
from tests.laws import reference
from tests.plan.test_rules import double, odd, picture


def stage_of(flow: Flow[Any, Any]) -> Stage:
    stage = lower(optimize(flow.node))
    assert isinstance(stage, Stage)
    return stage


def parts(node: AnyNode | None) -> str | None:
    return None if node is None else picture(node)


class TestPositionsTravel:
    flow = fl.from_range(20).shuffle().map(double).batch(3).prefetch(procs=2)

    def test_where_workers_can_read_for_themselves(self) -> None:
        stage = stage_of(self.flow)
        assert stage.bases == ()
        assert stage.procs == 2
        assert stage.program is stage.meaning
        assert picture(stage.meaning) == "from_range(20) > shuffle() > map(double) > batch(3)"

    def test_through_a_filter(self) -> None:
        stage = stage_of(fl.from_range(20).filter(odd).map(double).prefetch(procs=2))
        assert stage.bases == ()
        assert stage.drops
        assert not stage_of(self.flow).drops


class TestElementsTravel:
    @pytest.mark.parametrize(
        ("flow", "base", "program"),
        [
            (
                fl.from_items(range(20)).map(double),
                "from_items(20 items)",
                "supplied > map(double)",
            ),
            (
                fl.from_items(range(20)).shuffle().map(double).batch(2),
                "from_items(20 items) > shuffle()",
                "supplied > map(double) > batch(2)",
            ),
            (
                fl.from_items(range(20)).map(double).shuffle().take(9),
                "from_items(20 items)",
                "supplied > map(double) > shuffle() > take(9)",
            ),
            (
                fl.from_iterable(range(20)).map(double).batch(2),
                "from_iterable(range)",
                "supplied > map(double) > batch(2)",
            ),
            (
                fl.from_range(20).shuffle(4).map(double),
                "from_range(20) > shuffle(4)",
                "supplied > map(double)",
            ),
        ],
        ids=lambda value: picture(value.node) if isinstance(value, Flow) else "",
    )
    def test_from_what_only_this_process_can_make(
        self, flow: Flow[Any, Any], base: str, program: str
    ) -> None:
        stage = stage_of(flow.prefetch(procs=3))
        (below,) = stage.bases
        running = [part for part in walk(below) if not isinstance(part, Stage)]
        assert (
            " > ".join(part.title for part in running)
            .replace("seed=0", "")
            .replace("buffer=", "")
            .replace(", )", ")")
            == base
        )
        assert picture(stage.program) == program
        assert picture(stage.meaning) == picture(flow.node)

    def test_to_a_place_that_has_their_length_and_is_as_indexable(self) -> None:
        supplied = next(walk(stage_of(fl.from_items([1, 2]).map(double).prefetch(1)).program))
        assert isinstance(supplied, Supplied)
        assert (supplied.length, supplied.indexable) == (2, True)
        supplied = next(walk(stage_of(fl.from_iterable([1]).map(double).prefetch(1)).program))
        assert (supplied.length, supplied.indexable) == (None, False)
        with pytest.raises(AssertionError):
            supplied.rows(0)

    @pytest.mark.parametrize(("sizes", "ratio"), [((), 1), ((3,), 3), ((3, 4), 12)])
    def test_so_many_for_an_element(self, sizes: tuple[int, ...], ratio: int) -> None:
        flow: Flow[Any, Any] = fl.from_iterable([np.zeros(3)] * 30).map(np.sqrt)
        for n in sizes:
            flow = flow.batch(n)
        assert stage_of(flow.prefetch(procs=2)).rows_per_element == ratio


class TestWithoutPrefetch:
    def test_what_is_indexable_is_one_stage_here(self) -> None:
        flow = fl.from_range(20).shuffle().map(double).batch(3)
        stage = stage_of(flow)
        assert (stage.procs, stage.bases, stage.meaning) == (0, (), flow.node)

    def test_what_is_not_stands_on_it(self) -> None:
        flow = fl.from_range(20).map(double).filter(odd).batch(3)
        batch = lower(flow.node)
        (filtered,) = batch.sources
        (stage,) = filtered.sources
        assert [batch.title, filtered.title] == ["batch(3)", "filter(odd)"]
        assert isinstance(stage, Stage)
        assert picture(stage.meaning) == "from_range(20) > map(double)"

    def test_what_is_above_one_stays_here(self) -> None:
        flow = fl.from_range(20).map(double).prefetch(procs=2).map(abs).batch(2)
        batch = lower(optimize(flow.node))
        (mapped,) = batch.sources
        (stage,) = mapped.sources
        assert [batch.title, mapped.title] == ["batch(2)", "map(abs)"]
        assert isinstance(stage, Stage)
        assert (stage.procs, picture(stage.meaning)) == (2, "from_range(20) > map(double)")

    def test_a_stream_runs_by_its_reference(self) -> None:
        node = fl.from_iterable([1]).map(double).node
        assert lower(node) is node


def test_two_pools_on_both_sides_of_a_window() -> None:
    flow = fl.from_range(20).map(double).shuffle(4).map(double).prefetch(procs=2)
    upper = stage_of(flow)
    (window,) = upper.bases
    (below,) = window.sources
    assert isinstance(below, Stage)
    assert (upper.procs, below.procs) == (2, 2)
    assert (window.title, below.bases) == ("shuffle(buffer=4, seed=0)", ())
    assert picture(upper.program) == "supplied > map(double)"
    assert picture(below.program) == "from_range(20) > map(double)"


def test_a_stage_means_what_its_operators_mean() -> None:
    flow = fl.from_range(20).shuffle().filter(odd).prefetch(procs=2)
    stage = stage_of(flow)
    assert list(stage.rows(1)) == list(flow.node.rows(1))
    assert stage.effects == flow.effects
    assert stage.length is None
    assert stage.spec(probe=True) == flow.spec
    assert stage.origin(1, 3) == flow.node.origin(1, 3)
    assert stage.title == "filter(odd)"


def _draw(_: object, rng: np.random.Generator) -> float:
    return rng.random()


@pytest.mark.parametrize(
    "flow",
    [
        fl.from_items(range(6)).repeat().batch(4).take(2).shuffle(),
        fl.from_items(range(10)).repeat().batch(2).random_map(_draw).take(3).repeat(2),
    ],
    ids=repr,
)
def test_a_program_keeps_the_effects_of_what_it_is_supplied_with(flow: Flow[Any, Any]) -> None:
    stage = lower(optimize(flow.prefetch(procs=2).node))
    assert isinstance(stage, Stage)
    assert stage.program.effects == flow.effects
    assert stage.program.length == flow.node.length
    assert same(flow.prefetch(procs=2).collect(), flow.collect())


class TestSeveralFlows:
    def test_positions_travel_for_all(self) -> None:
        flow = fl.from_range(20).map(double).concat(fl.from_range(9)).shuffle().prefetch(procs=2)
        stage = stage_of(flow)
        assert stage.bases == ()
        assert stage.program is stage.meaning

    def test_every_base_in_memory_has_its_slot(self) -> None:
        rows = fl.from_items(range(20))
        flow = rows.map(double).zip(rows.repeat().take(20).map(abs))
        stage = stage_of(flow.map(str).prefetch(procs=2))
        assert [base.title for base in stage.bases] == ["from_items(20 items)", "take(20)"]
        slots = [part for part in walk(stage.program) if isinstance(part, Supplied)]
        assert [(part.slot, part.length, part.indexable) for part in slots] == [
            (0, 20, True),
            (1, 20, True),
        ]

    def test_a_flow_in_two_places_is_two_bases(self) -> None:
        rows = fl.from_items(range(20))
        stage = stage_of(rows.map(double).concat(rows.map(abs), rows).prefetch(procs=2))
        assert [base.title for base in stage.bases] == ["from_items(20 items)"] * 3
        slots = [part.slot for part in walk(stage.program) if isinstance(part, Supplied)]
        assert slots == [0, 1, 2]

    def test_a_base_inside_another_is_not_taken_for_it(self) -> None:
        rows = fl.from_items(range(20))
        flow = rows.map(double).concat(rows.shuffle(seed=3).map(abs)).prefetch(procs=2)
        stage = stage_of(flow)
        assert [base.title for base in stage.bases] == ["from_items(20 items)", "shuffle(seed=3)"]
        assert picture(stage.program) == "supplied > map(double) > concat(supplied > map(abs))"
        assert flow.collect() == reference(flow.node).elements

    def test_what_is_chosen_among_rows_in_memory_is_a_base_itself(self) -> None:
        rows = fl.from_items(range(20))
        stage = stage_of(rows.mix(rows.take(3)).shuffle().map(str).prefetch(procs=2))
        (base,) = stage.bases
        assert base.title == "shuffle(seed=0)"
        assert picture(stage.program) == "supplied > map(str)"

    def test_a_stream_among_them_makes_it_one(self) -> None:
        flow = fl.from_range(9).map(double).interleave(fl.from_iterable(range(9))).map(str)
        stage = stage_of(flow.prefetch(procs=4))
        (merged,) = stage.bases
        assert merged.title == "interleave(...)"
        below, stream = merged.sources
        assert isinstance(below, Stage)
        assert (below.procs, picture(below.meaning)) == (4, "from_range(9) > map(double)")
        assert stream.title == "from_iterable(range)"

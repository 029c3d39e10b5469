"""A program computes the elements of a flow at any positions, equal to the reference."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow
from flowdsl.executor.program import (
    OperatorFailed,
    Program,
    element_error,
    members_of,
    rows_needed,
)
from flowdsl.nodes import AnyNode, Batched, Indices, Placement
from flowdsl.plan.lower import plan_of
from flowdsl.plan.optimize import optimize
from flowdsl.plan.plan import Lookup, Stage
from flowdsl.plan.tree import steps_of, walk
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import reference
from flowdsl.testing.recipes import Recipe
from tests.sampling import examples
from tests.sources import Numbers
from tests.strategies import chains


def grouping(flow: Flow[Any, Any]) -> Batched[Any, Any, Any]:
    assert isinstance(flow.node, Batched)
    return flow.node


def stage_of(flow: Flow[Any, Any]) -> Stage:
    stage = plan_of(flow.node).root
    assert isinstance(stage, Stage)
    return stage


@settings(max_examples=examples(250), suppress_health_check=[HealthCheck.filter_too_much])
@given(chains(most=5), st.data())
def test_elements_at_any_addresses_equal_the_reference(recipe: Recipe, data: st.DataObject) -> None:
    node = optimize(steps_of(recipe.build().node)).node
    if isinstance(node, Placement):
        node = node.source  # a program is what runs there
    assume(node.indexable and not any(isinstance(part, Placement) for part in walk(node)))
    passes = [reference(node, epoch) for epoch in range(3)]
    assume(all(one.error is None and one.elements for one in passes))
    places = st.tuples(st.integers(0, 2), st.integers(0, len(passes[0].elements) - 1))
    wanted = data.draw(st.lists(places, max_size=20))
    at = Indices(*np.array(wanted, np.int64).reshape(-1, 2).T)
    got = list(Program(node).rows(at))
    assert [position for position, _ in got] == [position for _, position in wanted]
    assert same([x for _, x in got], [passes[epoch].elements[i] for epoch, i in wanted])


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.filter_too_much])
@given(chains(most=4, last="Filter"), st.integers(0, 12), st.integers(0, 12))
def test_a_filter_leaves_gaps_in_positions(recipe: Recipe, start: int, size: int) -> None:
    node = optimize(steps_of(recipe.build().node)).node
    assume(not any(isinstance(part, Placement) for part in walk(node)))
    length = node.sources[0].length if node.sources else None
    assume(node.sources[0].indexable and length is not None and reference(node).error is None)
    whole = list(node.reference(0))
    stop = min(start + size, length or 0)
    got = list(Program(node).rows(Indices.span(0, min(start, stop), stop)))
    expected = [(i, x) for i, x in whole if start <= i < stop]
    assert [i for i, _ in got] == [i for i, _ in expected]
    assert same([x for _, x in got], [x for _, x in expected])


@given(st.integers(0, 20), st.integers(1, 5), st.lists(st.integers(0, 30), unique=True))
def test_supplied_elements_are_used_in_order(length: int, n: int, wanted: list[int]) -> None:
    flow = fl.from_items(range(length)).shuffle().map(str).repeat(3).batch(n, collate=list)
    stage = stage_of(flow.prefetch(procs=1))
    (base,) = stage.bases
    batches = reference(flow.node, 1).elements
    wanted = [i for i in wanted if i < len(batches)]
    at = Indices.at(1, wanted)
    below = rows_needed(stage.program, at)
    supplied = [x for _, x in Program(base.top.node).rows(below[0])]
    got = [x for _, x in Program(stage.program).rows(at, [supplied])]
    assert got == [batches[i] for i in wanted]
    assert sorted(map(str, supplied)) == sorted(x for batch in got for x in batch)


def _meaning(base: AnyNode) -> AnyNode:
    return base.meaning if isinstance(base, Stage) else base


def test_a_stream_that_ends_ends_the_program() -> None:
    stage = stage_of(fl.from_iterable(range(9)).map(str).batch(4, collate=list).prefetch(procs=1))
    program = Program(stage.program)
    rows = program.rows(Indices.span(0, 0, 5), [range(6)])
    assert list(rows) == [(0, ["0", "1", "2", "3"]), (1, ["4", "5"])]
    whole = fl.from_iterable(range(9)).map(str).batch(4, drop_remainder=True, collate=list)
    program = Program(stage_of(whole.prefetch(procs=1)).program)
    assert list(program.rows(Indices.span(0, 0, 5), [range(6)])) == [(0, ["0", "1", "2", "3"])]


def test_elements_are_computed_on_demand() -> None:
    made: list[int] = []

    def note(i: int) -> int:
        made.append(i)
        return i

    rows = Program(fl.from_range(9).map(note).map(note).node).rows(Indices.span(0, 0, 9))
    assert made == []
    assert next(rows) == (0, 0)
    assert made == [0, 0]


def test_a_source_is_opened_once() -> None:
    opened: list[int] = []

    def noted() -> Callable[[int], int]:
        opened.append(len(opened))
        return int

    program = Program(Numbers(2, noted))
    for _ in range(2):
        assert list(program.rows(Indices.span(0, 0, 2))) == [(0, 0), (1, 1)]
    assert opened == [0]


def part(i: int) -> int:
    return 1 // (i - 4)


def part_first(rows: Sequence[int]) -> int:
    return part(rows[0])


class TestFailure:
    @pytest.mark.parametrize(
        ("flow", "path", "position", "operator", "origin"),
        [
            (
                fl.from_range(9).map(part),
                (),
                4,
                "map(part)",
                "row 4 of from_range(9)",
            ),
            (
                fl.from_range(9).map(part).map(int).batch(2),
                (0, 0),
                4,
                "map(part)",
                "row 4 of from_range(9)",
            ),
            (
                fl.from_range(9).batch(2, collate=part_first).map(int),
                (0,),
                2,
                "batch(2, collate=part_first)",
                "row 4 of from_range(9) to row 5 of from_range(9)",
            ),
            (
                fl.from_range(9).map(part).take(6),
                (0,),
                4,
                "map(part)",
                "row 4 of from_range(9)",
            ),
        ],
        ids=["last", "below", "grouping", "indexing"],
    )
    def test_failures_name_the_path_to_the_operator(
        self, flow: Flow[Any, Any], path: tuple[int, ...], position: int, operator: str, origin: str
    ) -> None:
        length = flow.node.length
        assert length is not None
        with pytest.raises(OperatorFailed) as caught:
            list(Program(flow.node).rows(Indices.span(1, 0, length)))
        failed = caught.value
        assert isinstance(failed.__cause__, ZeroDivisionError)
        assert (failed.path, failed.epoch, failed.position) == (path, 1, position)
        error = element_error(Lookup(steps_of(flow.node)), *failed.args)
        assert isinstance(error, ElementError)
        assert (error.operator, error.position, error.epoch) == (operator, position, 1)
        assert error.origin == origin

    def test_failures_of_a_source_name_its_path(self) -> None:
        class Broken(list[int]):
            def __getitem__(self, i: Any) -> Any:
                raise OSError(f"row {i}")

        node = fl.from_items(Broken([1, 2])).map(int).node
        with pytest.raises(OperatorFailed) as caught:
            list(Program(node).rows(Indices.span(0, 1, 2)))
        assert (caught.value.path, caught.value.position) == ((0,), 1)

    def test_failures_come_after_earlier_elements(self) -> None:
        rows = Program(fl.from_range(9).map(lambda i: 1 // (i - 2)).node).rows(
            Indices.span(0, 0, 9)
        )
        assert [next(rows), next(rows)] == [(0, -1), (1, -1)]
        with pytest.raises(OperatorFailed):
            next(rows)


class TestGroups:
    @given(st.integers(0, 30), st.integers(1, 7))
    def test_members_of_groups_are_the_slices(self, length: int, n: int) -> None:
        node = grouping(fl.from_range(length).batch(n))
        assert node.length is not None
        at = Indices.span(2, 0, node.length)
        members, sizes, shared, _ = members_of(node, at)
        assert members.position.tolist() == list(range(length))
        assert members.epoch.tolist() == [2] * length
        assert not shared.any()
        assert sizes.tolist() == [len(range(i, min(i + n, length))) for i in range(0, length, n)]

    def test_members_of_some_keep_their_epochs(self) -> None:
        node = grouping(fl.from_range(5).batch(2))
        at = Indices(np.array([7, 3]), np.array([2, 0]))
        members, *_ = members_of(node, at)
        assert members.position.tolist() == [4, 0, 1]
        assert members.epoch.tolist() == [7, 3, 3]

    def test_groups_of_an_endless_flow_are_full(self) -> None:
        node = grouping(fl.from_range(5).repeat().batch(4))
        members, sizes, *_ = members_of(node, Indices.at(0, [10]))
        assert (members.position.tolist(), sizes.tolist()) == ([40, 41, 42, 43], [4])

    def test_a_group_far_larger_than_the_flow_costs_no_more(self) -> None:
        node = grouping(fl.from_range(5).batch(2**61))
        members, sizes, *_ = members_of(node, Indices.span(0, 0, 1))
        assert (members.position.tolist(), sizes.tolist()) == ([0, 1, 2, 3, 4], [5])


class TestAllocate:
    @pytest.mark.parametrize(
        ("flow", "places"),
        [
            (fl.from_range(4).batch(2), 1),
            (fl.from_range(4).batch(2).shuffle().take(1), 1),  # they leave arrays alone
            (fl.from_range(4).batch(2).map(lambda x: x + 1), 0),  # what leaves is another array
            (fl.from_range(4).batch(2).batch(2), 1),  # of the outer one
        ],
        ids=["last", "below indexing", "below a map", "nested"],
    )
    def test_allocate_is_used_only_for_arrays_that_leave_the_program(
        self, flow: Flow[Any, Any], places: int
    ) -> None:
        asked: list[Any] = []

        def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            asked.append(np.empty(shape, dtype))
            return asked[-1]

        ((_, x),) = Program(flow.node, allocate).rows(Indices.span(0, 0, 1))
        assert len(asked) == places
        assert not places or asked[0] is x


class TestOverlappingGroups:
    @given(
        st.integers(0, 20),
        st.tuples(st.integers(1, 6), st.integers(1, 6)),
        st.integers(1, 3),
        st.sampled_from(["drop", "keep"]),
        st.lists(st.integers(0, 40)),
    )
    def test_windows_are_computed_in_any_order(
        self, length: int, sizes: tuple[int, int], dilation: int, remainder: Any, wanted: list[int]
    ) -> None:
        flow = fl.from_range(length).map(str)
        flow = flow.window(*sizes, dilation=dilation, remainder=remainder)
        windows = reference(flow.node).elements
        wanted = [i for i in wanted if i < len(windows)]
        got = list(Program(flow.node).rows(Indices.at(1, wanted)))
        assert got == [(i, windows[i]) for i in wanted]

    def test_a_row_shared_by_two_windows_is_made_once(self) -> None:
        made: list[int] = []

        def note(i: int) -> int:
            made.append(i)
            return i

        flow = fl.from_range(9).map(note).window(4, 2)
        assert flow.collect() == [(0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 6, 7)]
        made.clear()
        list(Program(flow.node).rows(Indices.span(0, 0, 3)))
        assert made == [*range(8)]
        made.clear()
        dilated = fl.from_range(9).map(note).window(3, dilation=2)
        list(Program(dilated.node).rows(Indices.span(0, 0, 5)))
        assert made == [0, 2, 4, 1, 3, 5, 6, 7, 8]

    def test_windows_of_two_epochs_share_no_rows(self) -> None:
        flow = fl.from_range(9).shuffle().window(3)
        at = Indices(np.array([0, 1, 1]), np.array([0, 1, 2]))
        got = [x for _, x in Program(flow.node).rows(at)]
        first, second = (reference(flow.node, epoch).elements for epoch in range(2))
        assert got == [first[0], second[1], second[2]]


class TestSeveralFlows:
    merged = fl.from_range(4).map(part).concat(fl.from_range(9).map(part)).map(abs)

    def test_a_failure_is_located_in_its_part(self) -> None:
        with pytest.raises(OperatorFailed) as caught:
            list(Program(self.merged.node).rows(Indices.span(1, 0, 13)))
        failed = caught.value
        assert (failed.path, failed.epoch, failed.position) == ((0, 1), 1, 4)
        error = element_error(Lookup(steps_of(self.merged.node)), *failed.args)
        assert (error.operator, error.origin) == ("map(part)", "row 4 of from_range(9)")

    def test_a_failure_to_join_belongs_to_the_zip(self) -> None:
        one: Flow[Any, Any] = fl.from_items([{"a": 1}, {"b": 1}])
        flow: Flow[Any, Any] = one.zip(fl.from_items([{"b": 2}, {"b": 2}])).map(len)
        with pytest.raises(OperatorFailed) as caught:
            list(Program(flow.node).rows(Indices.span(0, 0, 2)))
        assert (caught.value.path, caught.value.position) == ((0,), 1)

    @given(st.lists(st.integers(0, 19)), st.integers(0, 2))
    def test_only_needed_elements_of_each_base_are_requested(
        self, wanted: list[int], epoch: int
    ) -> None:
        one, other = fl.from_items(range(12)), fl.from_items(range(100, 108))
        flow = one.map(str).mix(other.shuffle().map(str))
        stage = stage_of(flow.prefetch(procs=1))
        whole = reference(flow.node, epoch).elements
        at = Indices.at(epoch, wanted)
        asked = rows_needed(stage.program, at)
        rows = [
            [x for _, x in Program(base.top.node).rows(asked[slot])]
            for slot, base in enumerate(stage.bases)
        ]
        got = [x for _, x in Program(stage.program).rows(at, rows)]
        assert got == [whole[i] for i in wanted]
        assert [len(found) for found in rows] == [
            sum(int(x) < 100 for x in got),
            sum(int(x) >= 100 for x in got),
        ]


class TestRepeatedElements:
    def test_repeated_elements_are_made_once(self) -> None:
        made: list[int] = []

        def note(i: int) -> int:
            made.append(i)
            return i

        flow = fl.from_range(4).map(note).repeat_each(3)
        assert flow.collect() == [i for i in range(4) for _ in range(3)]
        made.clear()
        list(Program(flow.node).rows(Indices.span(0, 1, 11)))
        assert made == [0, 1, 2, 3]

    def test_repeated_elements_of_two_epochs_differ(self) -> None:
        flow = fl.from_range(4).random_map(lambda i, rng: rng.random()).repeat_each(2)
        at = Indices(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
        first, second, third, fourth = (x for _, x in Program(flow.node).rows(at))
        assert first == second != third == fourth

    @given(st.lists(st.integers(0, 17)))
    def test_repeated_elements_are_supplied_once(self, wanted: list[int]) -> None:
        flow = fl.from_items(range(6)).map(str).repeat_each(3)
        stage = stage_of(flow.prefetch(procs=1))
        (base,) = stage.bases
        at = Indices.at(0, wanted)
        rows = [x for _, x in Program(base.top.node).rows(rows_needed(stage.program, at)[0])]
        got = [x for _, x in Program(stage.program).rows(at, [rows])]
        assert got == [str(i // 3) for i in wanted]
        assert len(rows) == sum(1 for _ in itertools.groupby(got))

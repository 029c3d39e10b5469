"""The operators of a chain as one loop: equal to the single operators, and naming failures."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow, SourceError
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.elements.structure import Component
from flowdsl.executor import codegen
from flowdsl.executor.codegen import Path
from flowdsl.executor.program import OperatorFailed, Program
from flowdsl.nodes import DROPPED, Dropped, Elementwise, Failed, Indices
from flowdsl.ops.mapping import Map
from flowdsl.ops.sources import FromRange
from tests.sources import Numbers


def failing_on(bad: object) -> Callable[[Any], Any]:
    def check(x: Any) -> Any:
        if x == bad:
            raise ValueError(bad)
        return x

    return check


def failing_on_parts(bad: object) -> Callable[..., Any]:
    return lambda *parts: failing_on(bad)(parts)


STEPS: dict[str, Callable[[Flow[Any, Any], object], Flow[Any, Any]]] = {
    "map": lambda flow, bad: flow.map(failing_on(bad)),
    "starmap": lambda flow, bad: flow.starmap(failing_on_parts(bad)),
    "filter": lambda flow, bad: flow.filter(lambda x: failing_on(bad)(x) is x),
    "filter_map": lambda flow, bad: flow.filter_map(failing_on(bad)),
    "random_map": lambda flow, bad: flow.random_map(lambda x, rng: failing_on(bad)(x)),
    "map_component": lambda flow, bad: flow.map_component(
        lambda i: failing_on(bad)((i,))[0], index=0
    ),
}


@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
    st.data(),
    st.integers(0, 6),
    st.booleans(),
)
def test_a_failing_operator_is_identified_by_its_path(
    names: list[str], data: st.DataObject, bad: int, placed: bool
) -> None:
    guilty = data.draw(st.integers(0, len(names) - 1))
    flow: Flow[Any, Any] = fl.from_items([(i,) for i in range(7)])
    for k, name in enumerate(names):
        flow = STEPS[name](flow, (bad,) if k == guilty else None)
    program = Program(flow.node)
    at = Indices.span(3, 0, 7)
    made: list[Any] = []
    with pytest.raises(OperatorFailed) as caught:
        made.extend(program.rows(at) if placed else program.elements(at))
    failed = caught.value
    assert (len(failed.path), failed.epoch, failed.position) == (len(names) - 1 - guilty, 3, bad)
    assert isinstance(failed.__cause__, ValueError)
    assert made == [(i, (i,)) if placed else (i,) for i in range(bad)]


def test_a_failure_has_the_position_at_the_failing_operator() -> None:
    flow = fl.from_range(9).map(failing_on(4)).shuffle(seed=2).map(str).repeat(2).map(len)
    with pytest.raises(OperatorFailed) as caught:
        list(Program(flow.node).rows(Indices.span(0, 9, 18)))
    assert caught.value.args == (
        (0, 0, 0, 0),
        1,
        4,
        "the element was 4",
    )  # of the second pass of what is repeated
    upper = fl.from_range(9).shuffle(seed=2).map(failing_on(4)).repeat(2)
    turn = list(fl.from_range(9).shuffle(seed=2).epoch(1)).index(4)
    with pytest.raises(OperatorFailed) as caught:
        list(Program(upper.node).rows(Indices.span(0, 9, 18)))
    assert caught.value.args == ((0,), 1, turn, "the element was 4")


def test_the_raised_exception_can_be_chosen() -> None:
    program = Program(
        fl.from_range(3).map(failing_on(1)).node, error=lambda *where: KeyError(*where)
    )
    with pytest.raises(KeyError) as caught:
        list(program.elements(Indices.span(5, 0, 3)))
    assert caught.value.args == ((), 5, 1, "the element was 1")
    assert isinstance(caught.value.__cause__, ValueError)


def test_stop_iteration_in_a_function_is_a_failure() -> None:
    flow = fl.from_range(3).map(lambda i: next(iter(range(i))))
    with pytest.raises(OperatorFailed) as caught:
        list(Program(flow.node).elements(Indices.span(0, 0, 3)))
    assert isinstance(caught.value.__cause__, StopIteration)


def items(*given: Any) -> Any:
    """A flow of elements of unknown type."""
    return fl.from_items(given)


@attrs.frozen
class Always:
    """A function of unknown type."""

    value: Any

    def __call__(self, _: object) -> Any:
        return self.value


class Pair(NamedTuple):
    a: int
    b: int


class TestLines:
    def test_overriding_a_final_apply_is_an_error(self) -> None:
        with pytest.raises(TypeError, match=r"Twice.apply: it cannot .* CodeTemplate"):

            class Twice(Map[Any, Any, Any]):
                def apply(self, x: Any, epoch: int, position: int) -> Any:  # type: ignore[misc]  # it is final
                    return 2 * self.func(x)

    def test_overriding_a_final_open_is_an_error(self) -> None:
        negative = Numbers(3, lambda: lambda i: -i)
        assert list(Program(negative).elements(Indices.span(0, 0, 3))) == [0, -1, -2]
        with pytest.raises(TypeError, match=r"Negative.open: it cannot .* FromRange"):

            class Negative(FromRange):
                def open(self) -> Callable[[int], int]:  # type: ignore[misc]  # it is final
                    return lambda i: -i

    def test_code_templates_agree_with_the_reference(self) -> None:
        pairs, mixed = items((1, 2), (3, 4)), items((1, 2), Pair(3, 4), (5, 6, 7))
        spelled: list[Flow[Any, Any]] = [
            fl.from_range(9).map(str),
            pairs.starmap(max),
            pairs.starmap(lambda a, b: a - b),
            items(Pair(1, 2), (3,), [4, 5]).starmap(lambda a, b=9: a - b),
            items((1, 2, 3), ()).starmap(lambda *parts: parts),
            *(mixed.map_component(str, k) for k in (0, 1, -1)),
            items({"a": 1, "b": 2}).map_component(str, "a"),
            *(mixed.select(*picks) for picks in ((fl.c1, fl.c0), (fl.c1,), (fl.c1, len))),
            fl.from_range(9).filter(lambda i: i % 3 == 0),
            fl.from_range(9).filter_map(lambda i: None if i % 2 else -i),
        ]
        for flow in spelled:
            n = flow.node.length or 9
            rows = list(flow.node.reference(0))
            same = list(Program(flow.node).rows(Indices.span(0, 0, n)))
            assert same == rows
            assert [type(x) for _, x in same] == [type(x) for _, x in rows]

    @pytest.mark.parametrize("x", [[1, 2], {0: 1, 1: 2}, "ab"])
    def test_objects_that_only_look_like_pairs_are_refused(self, x: object) -> None:
        flow: Any = fl.from_range(1).map(Always(x))
        flow = flow.map_component(str, 0)
        for run in (iter(flow), flow.node.reference(0)):
            with pytest.raises(fl.ElementError) as caught:
                list(run)
            assert "there is no component 0" in str(caught.value.__cause__)

    def test_names_in_lines_of_different_steps_do_not_collide(self) -> None:
        class Odd(Elementwise[Any, Any, Any]):
            @property
            def title(self) -> str:
                return "odd"

            @property
            def loop_line(self) -> str:
                return "x = {func1}(x)"

            @property
            def func1(self) -> Callable[[Any], Any]:
                return lambda x: ("odd", x)

            def apply(self, x: Any, epoch: int, position: int) -> Any:
                return self.func1(x)

            def spec(self, probe: bool) -> Spec:
                return UNKNOWN

        flow = fl.from_range(1).apply(Odd)
        for k in range(12):
            flow = flow.map(lambda x, k=k: (*x, k))  # type: ignore[misc]  # no checker knows k
        assert flow.collect() == [("odd", 0, *range(12))]

    def test_mocks_that_claim_to_be_functions_are_called(self) -> None:
        func = mock.Mock(spec=lambda a, b: None, return_value=7)
        assert items((1, 2)).starmap(func).collect() == [7]

    def test_a_component_that_is_not_a_number_is_not_inlined(self) -> None:
        assert items({"a": 1}).select(Component("a")).collect() == [(1,)]  # type: ignore[arg-type]  # of a wrong type


class TestLeftOut:
    def test_dropped_is_unique_in_each_process(self) -> None:
        assert pickle.loads(pickle.dumps(DROPPED)) is DROPPED
        flow = fl.from_range(4).filter_map(lambda i: DROPPED if i % 2 else i)
        assert flow.prefetch(procs=1).collect() == flow.collect() == [0, 2]

    @given(st.lists(st.booleans()), st.integers(0, 3))
    def test_elements_left_out_are_counted(self, keep: list[bool], above: int) -> None:
        flow: Flow[Any, Any] = fl.from_items(keep).map(bool).filter(lambda x: x)
        for _ in range(above):
            flow = flow.filter(lambda x: x).map(bool)
        program = Program(flow.node)
        at = Indices.span(0, 0, len(keep))
        assert list(program.rows(at)) == [(i, True) for i, kept in enumerate(keep) if kept]
        assert program.filtered == keep.count(False)
        program.filtered = 0
        assert list(program.elements(at)) == [True] * keep.count(True)
        assert program.filtered == keep.count(False)

    def test_elements_left_out_are_reported_with_their_operator(self) -> None:
        reported: list[tuple[type[Dropped | Failed], Path]] = []

        @attrs.define
        class Watching(Program):
            def left_out(self, x: Dropped | Failed, path: Path) -> None:
                reported.append((type(x), path))

        flow = fl.from_range(3).filter(lambda i: i != 1).map(str).filter_map(lambda s: s or None)
        assert list(Watching(flow.node).elements(Indices.span(0, 0, 3))) == ["0", "2"]
        assert reported == [(Dropped, (0, 0))]


def test_a_source_is_opened_when_its_first_row_is_requested() -> None:
    def lost() -> Callable[[int], int]:
        raise SourceError("it is gone")

    flow = fl.from_range(3).concat(fl.from_range(3).apply(lambda _: Numbers(3, lost)))
    elements = Program(flow.node).elements(Indices.span(0, 0, 6))
    assert [next(elements) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(SourceError, match="it is gone"):
        next(elements)


class TestClock:
    @pytest.fixture
    def now(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
        """A clock that only the test advances."""
        now = [0.0]
        monkeypatch.setattr(codegen, "perf_counter", lambda: now[0])
        codegen._loop.cache_clear()
        yield now
        codegen._loop.cache_clear()

    def test_each_operator_is_charged_only_its_own_work(self, now: list[float]) -> None:
        def taking(seconds: float, x: Any) -> Any:
            now[0] += seconds
            return x

        class Slow(list[int]):
            def __getitem__(self, i: Any) -> Any:
                return taking(1, super().__getitem__(i))

        flow = (
            fl.from_items(Slow(range(12)))
            .shuffle()
            .map(lambda i: taking(10, i))
            .map(lambda i: taking(100, i))
            .batch(4, collate=lambda rows: taking(1000, rows))
            .filter(lambda rows: bool(taking(10_000, 0 in rows)))
        )
        program = Program(flow.node, time_operators=True)
        for _ in program.rows(Indices.span(0, 0, 3)):
            now[0] += 1e6  # the consumer's time
        assert dict(program.costs) == {
            (): (3, 30_000),
            (0,): (3, 3000),
            (0, 0): (12, 1200),
            (0, 0, 0): (12, 120),
            (0, 0, 0, 0, 0): (12, 12),
        }
        list(program.rows(Indices.span(0, 0, 1)))
        assert program.costs[(0,)] == (4, 4000)

    def test_without_a_clock_operators_are_not_timed(self) -> None:
        program = Program(fl.from_range(3).map(str).node)
        list(program.elements(Indices.span(0, 0, 3)))
        assert program.costs == {}

    def test_a_failure_is_reported_alike_with_a_clock(self) -> None:
        program = Program(fl.from_range(5).map(str).map(failing_on("3")).node, time_operators=True)
        made: list[str] = []
        with pytest.raises(OperatorFailed) as caught:
            made.extend(program.elements(Indices.span(0, 0, 5)))
        assert caught.value.args == ((), 0, 3, "the element was '3'")
        assert {path: calls for path, (calls, _) in program.costs.items()} == {
            (): 3,
            (0,): 4,
            (0, 0): 4,
        }


def test_chains_with_the_same_lines_share_a_function() -> None:
    codegen._loop.cache_clear()
    functions: list[Callable[[Any], Any]] = [str, repr, hash, id]
    for f, g in pairwise(functions):
        list(Program(fl.from_range(2).map(f).map(g).node).elements(Indices.span(0, 0, 2)))
    assert codegen._loop.cache_info().misses == 1

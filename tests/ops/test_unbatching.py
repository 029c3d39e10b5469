"""unbatch: the inverse of batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import ElementError, InvalidFlow, UnknownLength, Unsized
from flowdsl.elements.structure import named_tuple_of
from flowdsl.testing.elements import FORMS, Listed, Named, Row, make, same

sizes = st.integers(1, 5)


@given(st.sampled_from(FORMS), st.integers(0, 12), sizes)
def test_unbatch_is_the_inverse_of_batch(form: str, length: int, n: int) -> None:
    items = [make(form, i) for i in range(length)]
    plain: list[Any] = [(x.id, x.data) for x in items] if form == "record" else items
    if form == "listed":  # a list of numbers is an array
        batch: Any = named_tuple_of(Listed)
        plain = [batch(x.id, np.array(x.data), x.name) for x in items]
    flow: Any = fl.from_items(items)
    assert same(flow.batch(n).unbatch().collect(), plain)
    assert [i for i, _ in flow.batch(n).unbatch().node.reference(0)] == list(range(length))
    assert same(flow.batch(n, collate=list).unbatch().collect(), items)
    if form in ("tuple", "named"):
        assert same(flow.batch(n, collate=fl.lists).unbatch().collect(), plain)


@given(st.integers(0, 12), sizes)
def test_batches_may_differ_in_size(length: int, modulus: int) -> None:
    arrays = [np.arange(i % modulus) for i in range(length)]
    rows = [i for array in arrays for i in array.tolist()]
    assert fl.from_items(arrays).unbatch(int).collect() == rows
    assert fl.from_iterable(arrays).unbatch(int).collect() == rows


def test_nested_components_are_unbatched() -> None:
    items = [{"id": i, "pair": (np.int8(i), {"name": str(i), "none": ()})} for i in range(4)]
    batch = {
        "id": np.arange(4),
        "pair": (np.arange(4, dtype=np.int8), {"name": ["0", "1", "2", "3"], "none": ()}),
    }
    got = fl.from_items([batch]).pipe(lambda flow: flow.apply(_unbatched)).collect()
    assert got == items


def _unbatched(node: Any) -> Any:
    from flowdsl.ops.unbatching import Unbatch

    return Unbatch(node, None)


def test_rows_are_views() -> None:
    batch = np.zeros((3, 2))
    rows = fl.from_items([batch]).unbatch().collect()
    assert all(np.shares_memory(row, batch) for row in rows)
    assert [type(i) for i in fl.from_items([np.arange(2)]).unbatch()] == [np.int64, np.int64]


def test_a_batch_is_read_when_its_rows_are_requested() -> None:
    stream = iter([np.arange(2), np.arange(3), np.arange(4)])
    run = iter(fl.from_iterable(stream).unbatch(int))
    assert [next(run), next(run), next(run)] == [0, 1, 0]
    assert len(next(stream)) == 4


@attrs.frozen(kw_only=True)
class PointBatch:
    x: NDArray[np.int64]
    _y: NDArray[np.int64]


@attrs.frozen(kw_only=True)
class Point(fl.Record[PointBatch]):
    _y: int
    x: int


new_point: Any = Point  # a checker does not know that attrs calls a field ``_y`` ``y``


class TestInto:
    def test_into_gets_tuple_components_in_order(self) -> None:
        items = [make("named", i) for i in range(3)]
        flow: Any = fl.from_items(items)
        assert same(flow.batch(2).unbatch(Named).collect(), items)
        assert same(flow.batch(2).starmap(Named).unbatch(Named).collect(), items)

    def test_into_gets_record_or_dict_components_by_name(self) -> None:
        points: list[Point] = [new_point(x=i, y=-i) for i in range(3)]
        assert fl.from_items(points).batch(2).unbatch(Point).collect() == points
        items = [make("record", i) for i in range(3)]
        assert same(fl.from_items(items).batch(2).unbatch(Row).collect(), items)
        dicts = fl.from_items([{"x": np.int64(i), "y": np.int64(-i)} for i in range(3)])
        assert dicts.batch(2).unbatch(Point).collect() == points

    def test_into_gets_the_rows_of_an_array_or_list(self) -> None:
        assert fl.from_range(3).batch(2).unbatch(float).collect() == [0.0, 1.0, 2.0]
        assert fl.from_items([["a", "b"]]).unbatch(str.upper).collect() == ["A", "B"]

    def test_a_failing_into_names_the_batch(self) -> None:
        def inverse(i: int) -> float:
            return 1 / int(i)

        run = iter(fl.from_items([3, 2, 1, 0]).batch(2).unbatch(inverse))
        assert [next(run), next(run), next(run)] == [1 / 3, 1 / 2, 1.0]
        with pytest.raises(ElementError) as caught:
            next(run)
        row = "row {} of from_items(4 items)"
        assert str(caught.value) == (
            f"unbatch(inverse) failed on element 1 ({row.format(2)} to {row.format(3)}): "
            f"ZeroDivisionError('division by zero'); the element was int64[2]"
        )
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def test_stop_iteration_in_into_does_not_end_the_flow(self) -> None:
        def stop(i: int) -> int:
            raise StopIteration

        with pytest.raises(ElementError):
            fl.from_range(3).batch(2).unbatch(stop).collect()


class Sample(NamedTuple):
    image: NDArray[np.float64]
    label: np.int8


class TestEffects:
    def test_the_length_is_unknown_before_the_end(self) -> None:
        flow: Any = fl.from_range(4).batch(2).unbatch()
        assert flow.effects == {Unsized}
        with pytest.raises(UnknownLength, match=r"because of unbatch\(\)"):
            len(flow)

    def test_unbatch_of_a_repeated_flow(self) -> None:
        flow = fl.from_range(3).batch(2).repeat(2).unbatch(int)
        assert flow.collect() == [0, 1, 2, 0, 1, 2]


class TestSpec:
    def test_the_spec_is_the_spec_of_the_rows(self) -> None:
        flow = fl.from_items([(np.zeros((2, 3), np.uint8), np.zeros(2))] * 2)
        assert str(flow.unbatch().spec) == "(uint8[3], float64[])"
        assert str(fl.from_items([{"a": np.zeros((2, 3))}]).unbatch().spec) == "{a: float64[3]}"
        samples = fl.from_items([Sample(np.zeros(3), np.int8(1))] * 2)
        assert str(samples.batch(2).unbatch().spec) == "Sample(image: float64[3], label: int8[])"

    def test_the_spec_of_a_list_comes_from_its_first_row(self) -> None:
        flow = fl.from_items([(np.zeros((i, 3)), "a") for i in range(3)])
        assert str(flow.batch(2, collate=list).unbatch().spec) == "(float64[?, ?], str)"

    def test_the_spec_of_into_is_its_annotation(self) -> None:
        def halved(i: int) -> float:
            raise AssertionError("not asked")

        batches = fl.from_range(3).batch(2)
        assert str(batches.unbatch(halved).spec) == "float"
        assert str(batches.unbatch(lambda i: int(i)).spec) == "int"
        one: list[Point] = [new_point(x=1, y=2)]
        assert (
            str(fl.from_items(one).batch(1).unbatch(Point).spec) == "Point(_y: int64[], x: int64[])"
        )

    def test_varying_sizes_are_unknown(self) -> None:
        flow = fl.from_range(3).map(lambda i: np.zeros((3, i))).padded_batch(2)
        assert str(flow.unbatch().spec) == "float64[?, ?]"


class Pair(NamedTuple):
    image: Any
    label: Any


NO_ROWS = "has no rows; arrays with a leading axis and lists have"


class TestRefusals:
    @pytest.mark.parametrize(
        ("element", "said"),
        [
            (3, f"element: int {NO_ROWS}"),
            ("ab", f"element: str {NO_ROWS}"),
            (np.int8(3), f"element: int8[] {NO_ROWS}"),
            (np.zeros(()), f"element: float64[] {NO_ROWS}"),
            ((np.zeros(2), 3), f"element.1: int {NO_ROWS}"),
            (Pair(np.zeros(2), (b"a",)), f"element.label.0: bytes {NO_ROWS}"),
            ({"a": {"b": None}}, f"element.a.b: NoneType {NO_ROWS}"),
        ],
    )
    def test_elements_without_rows_are_refused(self, element: Any, said: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            _unbatched(fl.from_items([element]).node)
        assert str(caught.value) == f"unbatch(): {said}"
        flow: Any = fl.from_range(2).map(lambda i: element)
        with pytest.raises(ElementError) as failed:
            flow.unbatch().collect()
        begins = "unbatch() failed on element 0 (row 0 of from_range(2)): SpecMismatch("
        assert str(failed.value).startswith(begins)
        assert str(failed.value.__cause__) == said

    @pytest.mark.parametrize(
        ("element", "said"),
        [
            ((np.zeros(2), np.zeros((3, 2))), "element.0 has 2 rows, element.1 has 3"),
            ({"a": np.zeros(2), "b": [1]}, "element.a has 2 rows, element.b has 1"),
            (Pair([1], (np.zeros(1), [])), "element.image has 1 rows, element.label.1 has 0"),
        ],
    )
    def test_different_leading_sizes_are_an_error(self, element: Any, said: str) -> None:
        good: Any = ([1], [2])
        flow: Any = fl.from_items([good, element] if isinstance(element, tuple) else [element])
        run = iter(flow.unbatch())
        with pytest.raises(ElementError) as caught:
            list(run)
        assert str(caught.value.__cause__) == f"{said}: they must have equally many"

    def test_an_element_without_components_is_an_error(self) -> None:
        flow: Any = fl.from_items([()])
        with pytest.raises(ElementError) as caught:
            flow.unbatch().collect()
        assert str(caught.value.__cause__) == (
            "element: it has no components, so its number of rows is unknown"
        )

    @pytest.mark.parametrize("into", [3, "Sample", (int,)])
    def test_invalid_into_is_refused(self, into: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).batch(2).unbatch(into)
        assert str(caught.value) == f"unbatch: into must be callable, got {into!r}"


@pytest.mark.parametrize("procs", [0, 1])
def test_unbatch_between_prefetches(procs: int) -> None:
    flow = fl.from_range(7).batch(3).prefetch(procs=procs).unbatch(int)
    assert flow.map(lambda i: i * i).prefetch(procs=procs).collect() == [i * i for i in range(7)]


class TwoParts(NamedTuple):
    x: Any
    y: Any


def test_sizes_that_vary_in_rows_vary_in_the_result_of_into() -> None:
    rows = fl.from_items([(np.int32(i), np.zeros(2)) for i in range(4)])
    uneven = rows.batch(3).padded_batch(1)  # of three rows, and of one
    flow = uneven.unbatch(TwoParts)
    assert [x.x.shape for x in flow] == [(3,), (1,)]
    assert str(flow.spec) == "TwoParts(x: int32[?], y: float64[?, ?])"


def test_common_sizes_of_rows_are_known_in_the_class_of_into() -> None:
    flow = fl.from_items([(np.int32(i), np.zeros(2)) for i in range(4)]).batch(3).unbatch(TwoParts)
    assert str(flow.spec) == "TwoParts(x: int32[], y: float64[2])"


def test_an_empty_first_batch_determines_no_sizes() -> None:
    batches = [(np.zeros((0, 2)), np.zeros((0, 1))), (np.zeros((1, 2)), np.zeros((1, 1)))]
    flow = fl.from_items(batches).unbatch(TwoParts)
    assert str(flow.spec) == "TwoParts(x: float64[?], y: float64[?])"

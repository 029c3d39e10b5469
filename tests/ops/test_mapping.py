"""Operators on single elements, compared with list comprehensions."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from itertools import islice
from typing import Any, NamedTuple, Optional
from unittest import mock

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow, InvalidFlow, Reordered, SpecMismatch, Unsized
from flowdsl.elements.structure import Component
from flowdsl.testing.elements import same

ints = st.lists(st.integers(-100, 100), max_size=20)


class Pair(NamedTuple):
    number: int
    text: str


@dataclass
class PlainPair:
    number: int
    text: str


@attrs.frozen
class Point:
    x: int


class Words(dict[str, int]):
    pass


class Numbers(tuple[int, ...]):
    pass


def draw(_: int, rng: np.random.Generator) -> int:
    return int(rng.integers(2**60))


@given(ints)
def test_map_applies_the_function(items: list[int]) -> None:
    flow = fl.from_items(items).map(lambda x: 3 * x)
    assert flow.collect() == [3 * x for x in items]
    assert len(flow) == len(items)
    assert flow.effects == frozenset()


@given(st.lists(st.tuples(st.integers(), st.text())))
def test_starmap_unpacks_components(items: list[tuple[int, str]]) -> None:
    flow = fl.from_items(items).starmap(lambda number, text: f"{text}{number}")
    assert flow.collect() == [f"{text}{number}" for number, text in items]


@given(ints, st.integers(1, 5))
def test_filter_keeps_matching_elements(items: list[int], modulus: int) -> None:
    flow = fl.from_items(items).filter(lambda x: np.bool_(x % modulus == 0))
    assert flow.collect() == [x for x in items if x % modulus == 0]
    assert flow.effects == {Unsized}
    assert flow.node.length is None
    kept = [(i, x) for i, x in enumerate(items) if x % modulus == 0]
    assert list(flow.node.reference(0)) == kept  # with the positions that they had


@given(ints, st.integers(1, 5))
def test_filter_map_applies_and_filters(items: list[int], modulus: int) -> None:
    def func(x: int) -> int | None:
        return x // modulus if x % modulus == 0 else None

    flow = fl.from_items(items).filter_map(func)
    assert flow.collect() == [x // modulus for x in items if x % modulus == 0]
    assert flow.effects == {Unsized}
    assert flow.node.length is None
    kept = [(i, x // modulus) for i, x in enumerate(items) if x % modulus == 0]
    assert list(flow.node.reference(0)) == kept


def test_filter_map_leaves_out_only_none() -> None:
    falsy = [0, "", False, [], None, 0.0, ()]
    flow = fl.from_items(falsy).filter_map(lambda x: x)
    assert flow.collect() == [x for x in falsy if x is not None]
    assert fl.from_items(falsy).map(lambda x: x).collect() == falsy


def test_a_function_is_called_once_per_element_on_demand() -> None:
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


@pytest.mark.parametrize("method", ["map", "starmap", "filter", "random_map", "filter_map"])
def test_an_exception_of_a_function_is_the_cause(method: str) -> None:
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
    assert error.operator == f"{method}(fail)"
    assert (error.position, error.epoch) == (2, 0)
    assert error.origin == "row 2 of from_items(3 items)"
    assert isinstance(error.__cause__, KeyError)


class TestRandomMap:
    flow = fl.from_range(50).random_map(draw)

    def test_random_map_draws_the_same_in_the_same_epoch(self) -> None:
        for k in range(3):
            assert list(self.flow.epoch(k)) == list(self.flow.epoch(k))

    def test_draws_differ_for_each_element_epoch_seed_and_operator(self) -> None:
        pairs = fl.from_range(50).random_map(lambda i, rng: (i, draw(i, rng)))
        flows = [
            self.flow,
            fl.from_range(50).random_map(draw, seed=1),
            pairs.random_map(lambda pair, rng: draw(pair[0], rng)),
        ]
        draws = [x for flow in flows for k in range(3) for x in flow.epoch(k)]
        assert len(set(draws)) == len(draws) == 50 * 3 * 3

    def test_draws_do_not_depend_on_other_elements(self) -> None:
        whole = self.flow.collect()
        assert self.flow.take(7).collect() == whole[:7]
        kept = fl.from_range(50).filter(lambda i: i % 5 == 3).map(lambda i: i).random_map(draw)
        again = fl.from_range(50).filter(lambda i: i % 5 < 4).map(lambda i: i).random_map(draw)
        assert set(kept.collect()) < set(again.collect())

    def test_draws_are_the_same_in_every_release(self) -> None:
        def raw(_: int, rng: np.random.Generator) -> int:
            return int(rng.bit_generator.random_raw())

        flow = fl.from_range(2).random_map(raw, seed=7)
        assert [*flow, *flow.epoch(1)] == GOLDEN

    def test_each_element_has_its_own_generator(self) -> None:
        def spend(i: int, rng: np.random.Generator) -> int:
            rng.random(i)
            return draw(i, rng)

        first = [next(iter(fl.from_range(1).random_map(spend)))]
        assert fl.from_range(3).random_map(spend).collect()[:1] == first

    @pytest.mark.parametrize("seed", [-1, 0.5, True])
    def test_random_map_refuses_invalid_seeds(self, seed: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).random_map(draw, seed=seed)
        assert str(caught.value) == f"random_map: seed must be an int >= 0, got {seed!r}"


GOLDEN = [
    11915120571355287533,
    9065023645967449663,
    16340543560394862429,
    4660295322256207835,
]


METHODS = ["map", "starmap", "random_map", "filter", "filter_map", "flat_map", "map_component"]


@pytest.mark.parametrize("method", METHODS)
def test_operators_refuse_arguments_that_are_not_callable(method: str) -> None:
    flow: Any = fl.from_items([(0,)])
    with pytest.raises(InvalidFlow) as caught:
        getattr(flow, method)(3)
    argument = "keep" if method == "filter" else "func"
    assert str(caught.value) == f"{method}: {argument} must be callable, got 3"


class Adding:
    def three(self, x: int, y: int = 1) -> int:
        return x + y

    def __call__(self, x: int, y: int) -> int:
        return x + y


REFUSED: dict[str, Callable[[Any], Any]] = {
    "map: func is called with (element), and <lambda> takes 2": lambda f: f.map(lambda x, y: x),
    "random_map: func is called with (element, generator), and abs_of takes 1": lambda f: (
        f.random_map(abs_of, seed=1)
    ),
    "filter: keep is called with (element), and <lambda> takes 0": lambda f: f.filter(lambda: 1),
    "scan: func is called with (state, element), and <lambda> takes 1": lambda f: f.scan(
        lambda total: (total, total), 0
    ),
    "window: key is called with (element), and <lambda> takes 2": lambda f: f.window(
        2, key=lambda x, y: x
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_function_with_other_arguments_is_refused(message: str) -> None:
    with pytest.raises(InvalidFlow, match=f"^{re.escape(message)} positional argument"):
        REFUSED[message](fl.from_range(3))


def test_a_function_of_two_arguments_is_referred_to_other_operators() -> None:
    with pytest.raises(InvalidFlow, match="; starmap passes the parts of a tuple as arguments"):
        REFUSED["map: func is called with (element), and <lambda> takes 2"](fl.from_range(3))


def abs_of(x: int) -> int:
    return abs(x)


def test_functions_that_can_be_called_with_the_arguments_are_accepted() -> None:
    def with_default(x: int, y: int = 1) -> int:
        return x + y

    def with_keyword(x: int, *, y: int = 1) -> int:
        return x + y

    @wraps(abs_of)
    def wrapped(*args: Any) -> Any:
        return args[0]

    functions: list[Any] = [
        with_default,
        with_keyword,
        wrapped,
        lambda *args: args[0],
        Adding().three,
        partial(Adding(), 1),
        abs,
        str,
        np.sqrt,
        mock.Mock(return_value=1),
    ]
    for function in functions:
        assert len(fl.from_range(3).map(function).collect()) == 3


async def download(*_: object) -> bytes:
    return b""


class Download:
    async def __call__(self, x: object) -> bytes:
        return b""


def yields(x: object) -> Iterator[bool]:
    yield False


@pytest.mark.parametrize("method", ["filter", "take_while", "skip_while"])
def test_conditions_that_yield_are_refused_as_a_generator_is_always_true(method: str) -> None:
    flow: Any = fl.from_range(3)
    with pytest.raises(InvalidFlow, match=f"{method}: .* must return a condition, and yields yie"):
        getattr(flow, method)(yields)


def test_an_object_whose_calls_are_async_is_refused() -> None:
    with pytest.raises(InvalidFlow, match="func must not be async, and Download is"):
        fl.from_range(3).map(Download())


@pytest.mark.parametrize("method", METHODS)
def test_operators_refuse_async_functions_whose_calls_return_no_result(method: str) -> None:
    flow: Any = fl.from_items([(0,)])
    with pytest.raises(InvalidFlow) as caught:
        getattr(flow, method)(download)
    argument = "keep" if method == "filter" else "func"
    assert str(caught.value) == (
        f"{method}: {argument} must not be async, and download is: a call returns a coroutine; "
        f"write lambda x: asyncio.run(download(x)), and .prefetch(threads=n) after it for n at a "
        f"time"
    )


class TestFlatMap:
    @given(st.lists(st.lists(st.none() | st.integers(), max_size=4), max_size=6))
    def test_flat_map_yields_the_elements_of_each_iterable(
        self, items: list[list[int | None]]
    ) -> None:
        forms: list[Callable[[list[int | None]], Iterable[int | None]]] = [
            list,
            tuple,
            iter,
            lambda made: (x for x in made),
            lambda made: fl.from_items(made).filter(lambda _: True),
        ]
        expected = [x for made in items for x in made]
        for form in forms:
            flow = fl.from_items(items).flat_map(form)
            assert flow.collect() == expected
            assert list(flow.node.reference(0)) == list(enumerate(expected))
        assert fl.from_items(items).flat_map(list).node.length is None
        assert fl.from_items(items).flat_map(list).effects == {Unsized}
        assert fl.from_items(items).shuffle().flat_map(list).effects == {Reordered, Unsized}

    def test_flat_map_reads_only_requested_elements(self) -> None:
        seen: list[str] = []

        def count_up(i: int) -> Iterator[int]:
            try:
                for j in range(10 * i, 10 * i + 10):
                    seen.append(f"made {j}")
                    yield j
            finally:
                seen.append(f"closed {i}")

        run = iter(fl.from_range(3).flat_map(count_up))
        assert seen == []
        assert list(islice(run, 11)) == [*range(10), 10]
        assert seen == [*(f"made {j}" for j in range(10)), "closed 0", "made 10"]
        run.close()
        del run
        assert seen[-1] == "closed 1"

    def test_flat_map_runs_in_the_epoch_of_the_source(self) -> None:
        source = fl.from_range(9).shuffle()
        flow = source.flat_map(lambda i: [i, -i])
        for k in range(3):
            assert list(flow.epoch(k)) == [x for i in source.epoch(k) for x in (i, -i)]

    def test_flat_map_below_and_above_workers(self) -> None:
        source = fl.from_range(12).map(lambda i: i % 4).prefetch(procs=1)
        flow = source.flat_map(range).map(lambda i: -i).prefetch(procs=1)
        assert flow.collect() == [-j for i in range(12) for j in range(i % 4)]

    @pytest.mark.parametrize("before", [0, 2])
    def test_an_error_names_the_element_of_the_source(self, before: int) -> None:
        def fail(i: int) -> Iterator[int]:
            if i != 4:
                return iter([i])
            return fail_late(before)

        def fail_late(n: int) -> Iterator[int]:
            yield from range(n)
            raise KeyError("k")

        run = fl.from_range(6).filter(lambda i: i > 2).flat_map(fail).epoch(1)
        assert list(islice(run, 1 + before)) == [3, *range(before)]
        with pytest.raises(ElementError) as caught:
            next(run)
        error = caught.value
        assert (error.position, error.epoch) == (4, 1)
        name = error.operator
        assert name == "flat_map(fail)"
        assert str(error) == (
            f"{name} failed on element 4 of epoch 1 (row 4 of from_range(6)): KeyError('k'); "
            f"the element was 4"
        )
        assert repr(error.__cause__) == "KeyError('k')"

    def test_an_error_of_the_source_is_not_wrapped(self) -> None:
        flow = fl.from_range(3).map(lambda i: 1 // (i - 1)).flat_map(lambda i: [i])
        with pytest.raises(ElementError, match=r"^map\(<lambda>\) failed on element 1 "):
            flow.collect()

    def test_stop_iteration_in_a_function_does_not_end_the_pass(self) -> None:
        def stop(i: int) -> list[int]:
            raise StopIteration

        with pytest.raises(ElementError) as caught:
            fl.from_range(2).flat_map(stop).collect()
        assert isinstance(caught.value.__cause__, StopIteration)

    def test_flat_map_refuses_results_that_are_not_iterable(self) -> None:
        flow: Any = fl.from_range(2)
        with pytest.raises(ElementError) as caught:
            flow.flat_map(lambda i: None if i else []).collect()
        assert caught.value.position == 1
        assert isinstance(caught.value.__cause__, SpecMismatch)
        assert str(caught.value.__cause__) == (
            "the function of flat_map must return an iterable of elements, such as a list or a "
            "generator, got NoneType; use map where it returns one element, and filter_map where "
            "it returns one or None"
        )


class TestMapComponent:
    @given(st.lists(st.tuples(*[st.integers()] * 4), max_size=6), st.integers(-4, 3))
    def test_map_component_of_tuples(self, items: list[tuple[int, ...]], index: int) -> None:
        flow: Any = fl.from_items(items)
        mapped = flow.map_component(str, index)
        expected = [list(item) for item in items]
        changed = [[str(v) if i == index % 4 else v for i, v in enumerate(x)] for x in expected]
        assert mapped.collect() == [tuple(x) for x in changed]
        assert mapped.effects == frozenset()
        assert len(mapped) == len(items)
        assert mapped.node.indexable

    @given(st.dictionaries(st.text(max_size=3), st.integers(), min_size=1), st.data())
    def test_map_component_of_dicts(self, item: dict[str, int], data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(item)))
        before = dict(item)
        mapped = fl.from_items([item]).map_component(str, key).collect()[0]
        assert list(mapped.items()) == [(k, str(v) if k == key else v) for k, v in before.items()]
        assert item == before

    def test_map_component_defaults_to_the_first_and_accepts_numpy_ints(self) -> None:
        flow: Any = fl.from_items([(1, 2)])
        assert flow.map_component(str).collect() == [("1", 2)]
        last = flow.map_component(str, np.int64(1))
        assert last.collect() == [(1, "2")]
        assert repr(last) == "from_items(1 items).map_component(str, 1)"

    @pytest.mark.parametrize("index", [1, -1, "text"])
    def test_map_component_of_a_named_tuple_keeps_its_class(self, index: Any) -> None:
        flow: Any = fl.from_items([Pair(1, "a")])
        mapped = flow.map_component(str.upper, index)
        assert same(mapped.collect(), [Pair(1, "A")])
        assert str(mapped.spec) == "Pair(number: int, text: str)"
        assert mapped.starmap(Pair).collect() == [Pair(1, "A")]

    def test_map_component_of_a_record_makes_another(self) -> None:
        flow = fl.from_items([Point(1)]).map_component(lambda x: x + 1, "x")
        assert flow.collect() == [Point(2)]
        assert str(flow.spec) == "Point(x: int)"

    def test_a_field_that_a_record_sets_itself_is_refused(self) -> None:
        @attrs.frozen
        class Numbered:
            n: int
            twice: int = attrs.field(init=False, default=attrs.Factory(lambda n: 2 * n.n, True))

        with pytest.raises(InvalidFlow, match="Numbered sets its field 'twice' by itself"):
            fl.from_items([Numbered(1)]).map_component(str, "twice")

    @pytest.mark.parametrize("index", [True, 1.0, None, b"text"])
    def test_map_component_refuses_an_invalid_index(self, index: Any) -> None:
        flow: Flow[Any, Any] = fl.from_items([(1, 2)])
        with pytest.raises(InvalidFlow) as caught:
            flow.map_component(str, index)
        assert str(caught.value) == (
            "map_component: index must be the number of a component, its key in a dict, or the "
            f"name of a field, got {index!r}"
        )


THERE = (
    "components of a tuple are numbered from 0, those of a dict, a NamedTuple or a record are "
    "named; for any other element use map"
)
MISSING: list[tuple[object, int | str, str]] = [
    ((1, 2), 2, "there is no component 2 in this tuple of 2"),
    ((1, 2), -3, "there is no component -3 in this tuple of 2"),
    ((1, 2), "0", "there is no component '0' in this tuple of 2"),
    (Pair(1, "a"), "txt", "there is no component 'txt' in this Pair of 'number', 'text'"),
    ({"a": 1, "b": 2}, "c", "there is no component 'c' in this dict of 'a', 'b'"),
    ({"a": 1, "b": 2}, 0, "there is no component 0 in this dict of 'a', 'b'"),
    (Point(1), "y", "there is no component 'y' in this Point of 'x'"),
    (Point(1), 0, "there is no component 0 in this Point of 'x'"),
    (np.zeros(3), 0, "there is no component 0 in this ndarray"),
    ([1, 2], 0, "there is no component 0 in this list"),
    ("text", 0, "there is no component 0 in this str"),
]


class TestMissingComponents:
    @pytest.mark.parametrize(("element", "index", "message"), MISSING)
    def test_a_missing_component_is_refused_in_advance_if_known(
        self, element: object, index: int | str, message: str
    ) -> None:
        flow: Any = fl.from_items([element])
        with pytest.raises(InvalidFlow) as caught:
            flow.map_component(str, index)
        written = f", {index!r}" if index != 0 else ""
        assert str(caught.value) == f"map_component(str{written}): {message}; {THERE}"
        pick: Any = index if isinstance(index, str) else Component(index)
        with pytest.raises(InvalidFlow) as caught:
            flow.select(pick)
        spelled = repr(index) if isinstance(index, str) else f"c{index}"
        assert str(caught.value) == f"select({spelled}): {message}; {THERE}"

    @pytest.mark.parametrize(("element", "index", "message"), MISSING)
    def test_a_missing_component_is_an_element_error_otherwise(
        self, element: object, index: int | str, message: str
    ) -> None:
        def unknown(_: int) -> Any:
            return element

        flow: Any = fl.from_range(1).map(unknown)
        with pytest.raises(ElementError) as caught:
            flow.map_component(str, index).collect()
        assert isinstance(caught.value.__cause__, SpecMismatch)
        assert str(caught.value.__cause__) == f"{message}; {THERE}"
        if isinstance(index, str):
            with pytest.raises(ElementError) as caught:
                flow.select(index).collect()
            assert str(caught.value.__cause__) == f"{message}; {THERE}"


class TestSelect:
    @given(
        st.lists(st.tuples(*[st.integers()] * 4), max_size=6),
        st.lists(st.integers(0, 3), min_size=1, max_size=5),
    )
    def test_select_of_tuples(self, items: list[tuple[int, ...]], order: list[int]) -> None:
        selectors: list[Any] = [fl.c0, fl.c1, fl.c2, fl.c3]
        flow: Flow[Any, Any] = fl.from_items(items)
        selected = flow.select(*[selectors[i] for i in order])
        assert selected.collect() == [tuple(item[i] for i in order) for item in items]
        assert selected.effects == frozenset()
        assert len(selected) == len(items)
        assert selected.node.indexable
        assert selected.node.title == f"select({', '.join(f'c{i}' for i in order)})"

    @given(st.permutations(["a", "b", "c"]), st.integers(1, 3))
    def test_select_of_dicts(self, keys: list[str], n: int) -> None:
        item = {"a": 1, "b": 2, "c": 3}
        selected = fl.from_items([item]).select(*keys[:n])
        assert list(selected.collect()[0].items()) == [(key, item[key]) for key in keys[:n]]
        assert selected.node.title == f"select({', '.join(map(repr, keys[:n]))})"

    @pytest.mark.parametrize("element", [Pair(1, "a"), PlainPair(1, "a")])
    def test_select_of_fields(self, element: Any) -> None:
        flow: Any = fl.from_items([element])
        assert flow.select("text").collect() == [{"text": "a"}]
        assert flow.select("text", "number").collect() == [{"text": "a", "number": 1}]
        assert str(flow.select("text").spec) == "{text: str}"

    def test_select_by_any_function(self) -> None:
        flow = fl.from_items([Point(3)]).select(lambda p: p.x, str)
        assert flow.collect() == [(3, "Point(x=3)")]
        with pytest.raises(ElementError) as caught:
            fl.from_items([Point(3)]).select(lambda p: 1 // (p.x - 3)).collect()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    @pytest.mark.parametrize(
        ("picks", "got"),
        [
            ((), "()"),
            ((fl.c0, "a"), "(c0, 'a')"),
            (("a", fl.c0), "('a', c0)"),
            ((0,), "(0)"),
            ((fl.c1, None), "(c1, None)"),
            ((["a", "b"],), "(['a', 'b'])"),
        ],
    )
    def test_select_refuses_invalid_selectors(self, picks: tuple[Any, ...], got: str) -> None:
        flow: Flow[Any, Any] = fl.from_items([(1, 2)])
        with pytest.raises(InvalidFlow) as caught:
            flow.select(*picks)
        assert str(caught.value) == (
            "select: pass selectors, such as c0, or names of components, one or more, and all of "
            f"one kind; got {got}"
        )

    def test_select_refuses_a_repeated_key(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items([{"a": 1, "b": 2}]).select("b", "a", "b")
        assert str(caught.value) == "select: a dict has each key only once, got 'b' twice"
        twice = fl.from_items([(1, 2)]).select(fl.c1, fl.c1)
        assert twice.collect() == [(2, 2)]


class TestEnumerate:
    @given(ints, st.integers(0, 9), st.integers(1, 4))
    def test_enumerate_numbers_the_elements_in_order(
        self, items: list[int], start: int, modulus: int
    ) -> None:
        flow = fl.from_items(items).enumerate(start)
        assert flow.collect() == list(enumerate(items, start))
        assert flow.effects == frozenset()
        assert len(flow) == len(items)
        kept = [x for x in items if x % modulus]
        filtered = fl.from_items(items).filter(lambda x: x % modulus != 0).enumerate(start)
        assert filtered.collect() == list(enumerate(kept, start))
        assert filtered.effects == {Unsized}
        shuffled = fl.from_items(items).shuffle(seed=1)
        assert shuffled.enumerate().collect() == list(enumerate(shuffled))
        assert shuffled.enumerate().take(3).collect() == list(enumerate(shuffled))[:3]

    def test_enumerate_starts_again_in_each_pass(self) -> None:
        source = fl.from_range(4).shuffle()
        for k in range(3):
            assert list(source.enumerate().epoch(k)) == list(enumerate(source.epoch(k)))
        assert [i for i, _ in source.enumerate().repeat(2)] == [0, 1, 2, 3, 0, 1, 2, 3]
        assert [i for i, _ in source.repeat(2).enumerate()] == list(range(8))

    def test_numbers_stay_with_their_elements(self) -> None:
        flow = fl.from_range(9).map(lambda i: 10 * i).enumerate().shuffle()
        assert sorted(flow.collect()) == [(i, 10 * i) for i in range(9)]

    def test_enumerate_keeps_positions(self) -> None:
        flow = fl.from_range(5).filter(lambda i: i in (2, 4)).enumerate()
        assert list(flow.node.reference(0)) == [(2, (0, 2)), (4, (1, 4))]

    def test_enumerate_after_a_filter_with_workers(self) -> None:
        flow = fl.from_range(40).filter(lambda i: i % 3 == 0).enumerate(5).prefetch(procs=2)
        assert flow.collect() == list(enumerate(range(0, 40, 3), 5))

    def test_enumerate_resumes_with_the_next_number(self) -> None:
        flow = fl.from_range(9).filter(lambda i: i != 2).enumerate()
        with iter(flow) as run:
            begun = list(islice(run, 3))
            state = run.state_dict()
        assert begun + list(flow.resume(state)) == flow.collect()

    @pytest.mark.parametrize("start", [-1, 0.5, True, "1"])
    def test_enumerate_refuses_an_invalid_start(self, start: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).enumerate(start)
        assert str(caught.value) == f"enumerate: start must be an int >= 0, got {start!r}"

    def test_enumerate_accepts_a_numpy_start(self) -> None:
        flow: Any = fl.from_items("ab")
        first, second = flow.enumerate(np.uint8(255)).collect()
        assert [type(first[0]), *first, *second] == [int, 255, "a", 256, "b"]


class TestSpec:
    def test_the_spec_is_the_declared_return_type(self) -> None:
        def declared(i: int) -> float:
            raise AssertionError("not asked")

        def drawn(i: int, rng: np.random.Generator) -> float:
            raise AssertionError("not asked")

        assert str(fl.from_range(3).map(declared).spec) == "float"
        assert str(fl.from_range(3).random_map(drawn).spec) == "float"
        assert str(fl.from_items([(1,)]).starmap(declared).spec) == "float"

    def test_without_a_declaration_the_spec_comes_from_an_element(self) -> None:
        flow = fl.from_range(3).map(lambda i: np.zeros((2, 3), np.uint8))
        assert str(flow.spec) == "uint8[2, 3]"
        assert str(flow.node.spec(probe=False)) == "?"
        assert str(fl.from_range(3).random_map(lambda i, rng: rng.random()).spec) == "float"
        assert str(fl.from_items([(1, 2)]).starmap(max).spec) == "int"

    def test_the_spec_of_a_filter_is_the_sources_spec(self) -> None:
        assert str(fl.from_range(3).filter(bool).spec) == "int"

    def test_the_spec_of_a_filter_map_excludes_none(self) -> None:
        def declared(i: int) -> float | None:
            raise AssertionError("not asked")

        def optional(i: int) -> Optional[str]:  # noqa: UP045  # the older spelling
            raise AssertionError("not asked")

        def several(i: int) -> float | str | None:
            return "text" if i else None

        def always(i: int) -> Pair:
            raise AssertionError("not asked")

        source = fl.from_range(3)
        assert str(source.filter_map(declared).spec) == "float"
        assert str(source.filter_map(optional).spec) == "str"
        assert str(source.filter_map(always).spec) == "Pair(number: int, text: str)"
        assert str(source.filter_map(several).node.spec(probe=False)) == "?"
        assert str(source.filter_map(several).spec) == "str"
        assert str(source.filter_map(lambda i: i / 2 if i else None).spec) == "float"

    @pytest.mark.parametrize(
        "hint",
        [
            Iterable[float],
            Iterator[float],
            Generator[float, None, None],
            Sequence[float],
            list[float],
            tuple[float, ...],
        ],
    )
    def test_the_spec_of_a_flat_map_is_the_declared_item_type(self, hint: Any) -> None:
        def declared(i: int) -> Any:
            raise AssertionError("not asked")

        declared.__annotations__["return"] = hint
        assert str(fl.from_range(3).flat_map(declared).spec) == "float"

    @pytest.mark.parametrize("hint", [Any, dict[str, float], tuple[float, int], list, "Missing"])
    def test_without_a_declaration_the_spec_of_a_flat_map_is_probed(self, hint: Any) -> None:
        def vague(i: int) -> Any:
            return [i] * i

        vague.__annotations__["return"] = hint
        flow = fl.from_range(3).flat_map(vague)
        assert str(flow.node.spec(probe=False)) == "?"
        assert str(flow.spec) == "int"

    def test_the_spec_of_a_mapped_component_is_declared(self) -> None:
        def declared(x: object) -> float:
            raise AssertionError("not asked")

        pairs = fl.from_items([Pair(1, "a")])
        assert str(pairs.map_component(declared, 1).spec) == "Pair(number: int, text: float)"
        assert str(pairs.map_component(declared, -1).spec) == "Pair(number: int, text: float)"
        assert str(pairs.map_component(declared).spec) == "Pair(number: float, text: str)"
        dicts = fl.from_items([{"a": 1, "b": 2}])
        assert str(dicts.map_component(declared, "a").spec) == "{a: float, b: int}"
        flow = pairs.map_component(lambda text: np.zeros((2, 3)), 1)
        assert str(flow.node.spec(probe=False)) == "Pair(number: int, text: ?)"
        assert str(flow.spec) == "Pair(number: int, text: float64[2, 3])"
        unknown = fl.from_range(3).map(lambda i: (i, str(i))).map_component(declared)
        assert str(unknown.node.spec(probe=False)) == "?"

    def test_varying_sizes_of_a_mapped_component_are_unknown(self) -> None:
        batches = fl.from_range(5).map(lambda i: (np.zeros(3), np.int64(i))).batch(2)
        assert str(batches.map_component(np.negative).spec) == "(float64[?, 3], int64[?])"
        assert str(batches.select(fl.c1).spec) == "(int64[?])"

    def test_the_spec_of_a_selection_has_its_components(self) -> None:
        def declared(x: object) -> float:
            raise AssertionError("not asked")

        pairs = fl.from_items([Pair(1, "a")])
        assert str(pairs.select(fl.c1, declared, fl.c0).spec) == "(str, float, int)"
        assert str(pairs.select(lambda p: p.number / 2).spec) == "(float)"
        dicts = fl.from_items([{"a": 1, "b": "x"}])
        assert str(dicts.select("b", "a").spec) == "{b: str, a: int}"
        unknown = fl.from_range(3).map(lambda i: {"a": i})
        assert str(unknown.select("a").node.spec(probe=False)) == "{a: ?}"
        assert str(unknown.select("a").spec) == "{a: int}"

    def test_the_spec_of_a_subclass_of_dict_or_tuple_is_unknown(self) -> None:
        def words(i: int) -> Words:
            return Words(a=i)

        def numbers(i: int) -> Numbers:
            return Numbers((i, i))

        source: Any = fl.from_range(2)
        assert source.map(words).select("a").collect() == [{"a": 0}, {"a": 1}]
        assert source.map(numbers).map_component(str, 1).collect() == [(0, "0"), (1, "1")]

    def test_the_spec_of_enumerate_is_a_pair(self) -> None:
        assert str(fl.from_items("ab").enumerate().spec) == "(int, str)"
        assert str(fl.from_range(3).map(lambda i: i / 2).enumerate().spec) == "(int, float)"


class TestSpecAfterFilter:
    """A spec that comes from the first item, which may be left out by a filter."""

    def test_operators_valid_for_the_remaining_rows_are_not_refused(self) -> None:
        pairs: Flow[Any, Any] = fl.from_items([(1,), (1, 2), (3, 4)])
        assert pairs.filter(lambda t: len(t) == 2).select(fl.c1).collect() == [(2,), (4,)]
        mixed: Flow[Any, Any] = fl.from_items(["a", 1, 2])
        assert mixed.filter(lambda x: x != "a").batch(2).collect()[0].tolist() == [1, 2]
        assert str(mixed.filter(lambda x: x == "a").spec) == "str"

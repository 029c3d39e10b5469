"""batch_by_shape and batch_by_key, compared with sorting the elements into lists."""

from __future__ import annotations

from typing import Annotated, Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import (
    ElementError,
    Endless,
    InvalidFlow,
    Reordered,
    Resampled,
    SpecMismatch,
    UnknownLength,
    Unsized,
    c0,
    c1,
)
from flowdsl.testing.elements import same

kinds = st.lists(st.sampled_from([(1,), (2,), (1, 2), (2, 1)]), max_size=16)
sizes = st.integers(1, 4)


def rows_of(shapes: list[tuple[int, ...]]) -> list[tuple[NDArray[np.float32], np.int64]]:
    return [(np.full(shape, i, np.float32), np.int64(i)) for i, shape in enumerate(shapes)]


def model(shapes: list[tuple[int, ...]], n: int, drop: bool) -> list[list[int]]:
    """The numbers in each batch: full batches by their last row, others by their first."""
    full, left = [], []
    for shape in set(shapes):
        numbers = [i for i, s in enumerate(shapes) if s == shape]
        groups = [numbers[i : i + n] for i in range(0, len(numbers), n)]
        full += [group for group in groups if len(group) == n]
        left += [group for group in groups if len(group) < n and not drop]
    return sorted(full, key=lambda group: group[-1]) + sorted(left)


@given(kinds, sizes, st.booleans())
def test_batch_by_shape_groups_equal_shapes(
    shapes: list[tuple[int, ...]], n: int, drop: bool
) -> None:
    rows = rows_of(shapes)
    flow = fl.from_items(rows).pipe(_by_shape, n, drop)
    expected = [
        (np.stack([rows[i][0] for i in group]), np.array(group)) for group in model(shapes, n, drop)
    ]
    assert same(flow.collect(), expected)
    assert [position for position, _ in flow.node.reference(0)] == list(range(len(expected)))
    assert flow.effects == {Reordered, Unsized} | ({Resampled} if drop else set())


def _by_shape(flow: Any, n: int, drop: bool) -> Any:
    return flow.batch_by_shape(n, c0, drop_remainder=drop)


@given(kinds, sizes)
def test_collate_receives_the_list_of_elements(shapes: list[tuple[int, ...]], n: int) -> None:
    rows = rows_of(shapes)
    flow = fl.from_items(rows).batch_by_shape(n, lambda row: row[0], collate=list)
    assert [[i for _, i in group] for group in flow] == model(shapes, n, drop=False)


@given(kinds, sizes)
def test_no_batch_reaches_into_the_next_pass(shapes: list[tuple[int, ...]], n: int) -> None:
    flow = fl.from_items(rows_of(shapes)).batch_by_shape(n, c0)
    once = [batch[1].tolist() for batch in flow]
    assert [batch[1].tolist() for batch in flow.repeat(2)] == once * 2
    assert [batch[1].tolist() for batch in flow.epoch(3)] == once


def test_a_batch_is_yielded_as_soon_as_it_is_full() -> None:
    stream = iter(rows_of([(1,), (2,), (1,), (2,)]))
    run = iter(fl.from_iterable(stream).batch_by_shape(2, c0))
    assert next(run)[1].tolist() == [0, 2]
    assert next(stream)[1] == 3


@attrs.frozen
class WordBatch:
    word: NDArray[np.int64]


@attrs.frozen
class Word(fl.Record[WordBatch]):
    word: NDArray[np.int64]


def test_elements_become_the_same_as_in_batch() -> None:
    words = [np.array([1]), np.array([2, 3]), np.array([4])]
    records = fl.from_items([Word(w) for w in words]).batch_by_shape(2, lambda r: r.word).collect()
    assert [type(b) for b in records] == [WordBatch, WordBatch]
    assert [b.word.tolist() for b in records] == [[[1], [4]], [[2, 3]]]
    dicts = fl.from_items([{"w": w} for w in words]).batch_by_shape(2, lambda d: d["w"]).collect()
    assert [{k: v.tolist() for k, v in d.items()} for d in dicts] == [
        {"w": [[1], [4]]},
        {"w": [[2, 3]]},
    ]


def test_collate_of_components_in_a_tuple() -> None:
    flow: Any = fl.from_items(rows_of([(1,), (2,), (1,)]))
    got = flow.batch_by_shape(2, c0, collate=(None, len)).collect()
    assert same(got, [(np.array([[0], [2]], np.float32), 2), (np.array([[1, 1]], np.float32), 1)])
    assert "collate=(None, sum)" in repr(flow.batch_by_shape(2, c0, collate=(None, sum)))
    with pytest.raises(InvalidFlow, match="2 components, and collate 1"):
        flow.batch_by_shape(2, c0, collate=(len,))


class TestEffects:
    def test_an_endless_flow_has_no_remainder(self) -> None:
        flow = fl.from_items(rows_of([(1,), (2,), (1,)])).repeat()
        batches = flow.batch_by_shape(2, c0, drop_remainder=True)
        assert batches.effects == {Resampled, Reordered, Unsized, Endless}
        assert [b[1].tolist() for b in batches.take(3)] == [[0, 2], [1, 1], [0, 2]]

    def test_the_length_is_unknown(self) -> None:
        flow: Any = fl.from_items(rows_of([(1,)])).batch_by_shape(2, c0)
        with pytest.raises(UnknownLength, match="because of batch_by_shape"):
            flow.size()


def wide(i: int) -> Annotated[NDArray[np.uint8], fl.Shape(2, None)]:
    return np.zeros((2, i), np.uint8)


class TestSpec:
    def test_the_spec_has_the_size_of_every_batch(self) -> None:
        flow = fl.from_range(4).map(wide)
        by_shape = flow.batch_by_shape(2, lambda x: x)
        assert str(by_shape.spec) == "uint8[?, 2, ?]"
        assert str(flow.repeat().batch_by_shape(2, lambda x: x).spec) == "uint8[2, 2, ?]"
        full = flow.batch_by_shape(2, lambda x: x, drop_remainder=True)
        assert str(full.spec) == "uint8[2, 2, ?]"

    def test_sizes_of_one_element_are_not_assumed_for_others(self) -> None:
        flow = fl.from_range(4).map(lambda i: (np.zeros(i, np.uint8), np.int64(i)))
        assert str(flow.batch_by_shape(2, c0).spec) == "(uint8[?, ?], int64[?])"

    def test_the_spec_of_a_collate_is_its_annotation(self) -> None:
        flow = fl.from_items(rows_of([(1,)]))

        def total(rows: Any) -> float:
            raise AssertionError("not asked")

        assert str(flow.batch_by_shape(2, c0, collate=total).spec) == "float"
        assert str(flow.batch_by_shape(2, c0, collate=lambda rows: len(rows)).spec) == "int"


class TestRefusals:
    @pytest.mark.parametrize("n", [0, -1, 2.5, True, None, "2"])
    def test_invalid_n_is_refused(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(rows_of([(1,)])).batch_by_shape(n, c0)
        assert str(caught.value) == f"batch_by_shape: n must be an int >= 1, got {n!r}"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"selector": 0}, "selector must be callable, got 0"),
            (
                {"selector": "image"},
                (
                    "selector must be callable, got 'image'; for a component write "
                    "lambda x: x['image']"
                ),
            ),
            ({"selector": c0, "drop_remainder": 1}, "drop_remainder must be True or False, got 1"),
            (
                {"selector": c0, "collate": 3},
                (
                    "collate must be a function of the list of rows, or a dict or tuple of such "
                    "functions, one for each component; got 3"
                ),
            ),
        ],
    )
    def test_invalid_arguments_are_refused(self, arguments: Any, said: str) -> None:
        flow: Any = fl.from_items(rows_of([(1,)]))
        with pytest.raises(InvalidFlow) as caught:
            flow.batch_by_shape(2, **arguments)
        assert str(caught.value) == f"batch_by_shape: {said}"

    def test_elements_known_not_to_stack_are_refused(self) -> None:
        flow: Any = fl.from_items([(np.zeros(2), {1})])
        with pytest.raises(InvalidFlow) as caught:
            flow.batch_by_shape(2, c0)
        assert str(caught.value).startswith("batch_by_shape(2, c0): element.1: set does not stack")

    def test_a_selector_without_an_array_is_an_error(self) -> None:
        flow: Any = fl.from_items(rows_of([(1,), (1,)])).filter(lambda row: row[1] > 0)
        with pytest.raises(ElementError) as caught:
            flow.batch_by_shape(2, c1).collect()
        assert str(caught.value).startswith(
            "batch_by_shape(2, c1) failed on element 1 (row 1 of from_items(2 items)): SpecMismatch"
        )
        assert str(caught.value).endswith("; the element was (float32[1], np.int64(1))")
        assert str(caught.value.__cause__) == (
            "the selector must return an array, whose shape the element is grouped by; c1 returned "
            "int64"
        )

    def test_a_selector_that_raises_is_an_error(self) -> None:
        flow: Any = fl.from_items([{"x": np.zeros(2)}, {"x": np.zeros(2), "y": np.zeros(3)}])
        with pytest.raises(ElementError) as caught:
            flow.batch_by_shape(2, lambda row: row["y"]).collect()
        assert caught.value.origin == "row 0 of from_items(2 items)"
        assert isinstance(caught.value.__cause__, KeyError)

    def test_rows_that_do_not_stack_are_an_error(self) -> None:
        small, large = np.zeros(1), np.zeros(2)
        rows = [(large, small), (small, small), (small, large), (large, small)]
        run = iter(fl.from_items(rows).batch_by_shape(3, c0))
        with pytest.raises(ElementError) as caught:
            list(run)
        assert caught.value.origin == "row 1 of from_items(4 items) and 1 more of its group"
        assert isinstance(caught.value.__cause__, SpecMismatch)
        assert "element.1: row 0 of the batch is float64[1], row 1 is float64[2]" in str(
            caught.value.__cause__
        )

    def test_a_collate_that_fails_names_the_row(self) -> None:
        flow = fl.from_items(rows_of([(1,), (2,)])).batch_by_shape(
            1, c0, collate=lambda rows: 1 / 0
        )
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert caught.value.origin == "row 0 of from_items(2 items)"
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_batch_by_shape_title() -> None:
    flow = fl.from_items(rows_of([(1,)]))
    batches = flow.batch_by_shape(2, c0, drop_remainder=True, collate=len)
    assert repr(batches).endswith(".batch_by_shape(2, c0, drop_remainder=True, collate=len)")
    other = flow.batch_by_shape(2, c1)  # type: ignore[arg-type]  # only its name is looked at
    assert batches.node.fingerprint != other.node.fingerprint
    assert repr(flow.batch_by_shape(3, lambda row: row[0])).endswith("(3, <lambda>)")


@pytest.mark.parametrize("procs", [0, 1])
def test_batch_by_shape_between_prefetches(procs: int) -> None:
    flow = (
        fl.from_range(8).map(lambda i: (np.full(1 + i % 3, i), np.int64(i))).prefetch(procs=procs)
    )
    got = flow.batch_by_shape(2, c0).map(lambda b: b[1].tolist()).prefetch(procs=procs).collect()
    assert got == [[0, 3], [1, 4], [2, 5], [6], [7]]


class TestByKey:
    @given(st.lists(st.integers(0, 3), max_size=16), sizes)
    def test_batch_by_key_groups_equal_keys(self, keys: list[int], n: int) -> None:
        flow = fl.from_items([(key, i) for i, key in enumerate(keys)])
        batches = flow.batch_by_key(n, c0, collate=list)
        got = [[i for _, i in batch] for batch in batches]
        assert got == model([(key,) for key in keys], n, drop=False)
        full = flow.batch_by_key(n, c0, collate=list, drop_remainder=True)
        assert [len(batch) for batch in full] == [n] * len(full.collect())

    def test_elements_are_stacked(self) -> None:
        labels = fl.from_items([("cat", 1), ("dog", 2), ("cat", 3)]).batch_by_key(2, c0)
        assert [(names, ids.tolist()) for names, ids in labels] == [
            (["cat", "cat"], [1, 3]),
            (["dog"], [2]),
        ]

    @pytest.mark.parametrize("key", [[1], {}, np.zeros(1)])
    def test_a_key_that_is_not_hashable_is_an_error(self, key: Any) -> None:
        with pytest.raises(ElementError) as caught:
            fl.from_range(3).batch_by_key(2, lambda i: key).collect()
        assert caught.value.origin == "row 0 of from_range(3)"
        assert str(caught.value.__cause__) == (
            f"the key must be hashable, such as an int, text, or a tuple of them; <lambda> "
            f"returned {type(key).__name__}"
        )

    def test_invalid_arguments_are_refused(self) -> None:
        flow: Any = fl.from_range(3)
        with pytest.raises(InvalidFlow, match="batch_by_key: key must be callable, got 0"):
            flow.batch_by_key(2, 0)
        for group in (flow.batch_by_key, flow.window):
            with pytest.raises(InvalidFlow, match=r"key must .*, got 'id'; .*lambda x: x\['id'\]"):
                group(2, key="id")
        with pytest.raises(InvalidFlow, match="batch_by_key: n must be an int >= 1, got 0"):
            flow.batch_by_key(0, str)

    def test_the_title(self) -> None:
        flow = fl.from_range(3).batch_by_key(2, str, drop_remainder=True, collate=len)
        assert flow.node.title == "batch_by_key(2, str, drop_remainder=True, collate=len)"


@pytest.mark.parametrize("key", [float("nan"), np.float32("nan"), np.datetime64("NaT", "s")])
def test_a_key_that_does_not_equal_itself_is_an_error(key: float) -> None:
    flow = fl.from_range(6)
    for grouped in (flow.window(2, key=lambda _: key), flow.batch_by_key(2, lambda _: key)):
        with pytest.raises(fl.ElementError, match=r"element 0.*equal itself, and (nan|NaT) does"):
            grouped.collect()

"""batch, compared with np.stack of slices; window, compared with slices at every start."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

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
    Flow,
    InvalidFlow,
    Reordered,
    Resampled,
    SpecMismatch,
    Unsized,
)
from flowdsl.elements.stacking import lists
from flowdsl.elements.structure import components, named_tuple_of
from flowdsl.testing.elements import same

lengths = st.integers(0, 20)
sizes = st.integers(1, 7)


def _slices(items: list[Any], n: int, drop: bool) -> list[list[Any]]:
    every = [items[i : i + n] for i in range(0, len(items), n)]
    return [part for part in every if len(part) == n or not drop]


@given(lengths, sizes, st.booleans())
def test_batch_stacks_arrays(length: int, n: int, drop: bool) -> None:
    items = [np.full((2, 3), i, np.float32) for i in range(length)]
    flow = fl.from_items(items).batch(n, drop_remainder=drop)
    expected = [np.stack(part) for part in _slices(items, n, drop)]
    assert same(flow.collect(), expected)
    assert len(flow) == len(expected)


@given(lengths, sizes, st.booleans())
def test_batch_stacks_every_component(length: int, n: int, drop: bool) -> None:
    items = [{"id": i, "pair": (np.int8(i % 5), i / 2)} for i in range(length)]
    flow: Flow[Any, Any] = fl.from_items(items)
    expected = [
        {
            "id": np.array([row["id"] for row in part], np.int64),
            "pair": (
                np.array([i % 5 for i in part_ids(part)], np.int8),
                np.array([i / 2 for i in part_ids(part)], np.float64),
            ),
        }
        for part in _slices(items, n, drop)
    ]
    assert same(flow.batch(n, drop_remainder=drop).collect(), expected)


def part_ids(part: list[Any]) -> list[int]:
    return [row["id"] for row in part]


@given(lengths, sizes, sizes, st.booleans())
def test_batch_after_a_filter(length: int, n: int, modulus: int, drop: bool) -> None:
    flow = fl.from_range(length).filter(lambda i: i % modulus != 0)
    batches = flow.batch(n, drop_remainder=drop)
    kept = [i for i in range(length) if i % modulus != 0]
    assert [b.tolist() for b in batches] == _slices(kept, n, drop)
    assert batches.effects == frozenset({Unsized, Resampled} if drop else {Unsized})


@given(lengths, sizes, sizes)
def test_batch_of_batches(length: int, n: int, m: int) -> None:
    flow = fl.from_range(length).batch(n, drop_remainder=True).batch(m)
    rows = _slices(list(range(length)), n, True)
    assert [b.tolist() for b in flow] == _slices(rows, m, False)


def test_positions_count_batches_from_zero() -> None:
    assert [i for i, _ in fl.from_range(7).batch(2).node.reference(0)] == [0, 1, 2, 3]


def test_collate_receives_the_list_of_elements() -> None:
    flow = fl.from_items([(1, "a"), (2, "b"), (3, "c")])
    assert flow.batch(2, collate=list).collect() == [[(1, "a"), (2, "b")], [(3, "c")]]
    assert flow.batch(2, collate=lists).collect() == [([1, 2], ["a", "b"]), ([3], ["c"])]
    assert flow.batch(2, drop_remainder=True, collate=len).collect() == [2]


# -- functions of components -----------------------------------------------------------------------


@attrs.frozen
class WordBatch:
    text: str
    number: NDArray[np.int64]


@attrs.frozen
class Word(fl.Record[WordBatch]):
    text: str
    number: int


class Named(NamedTuple):
    text: str
    number: int


class NamedBatch(NamedTuple):
    text: list[str]
    number: NDArray[np.int64]


@dataclass
class Plain:
    text: str
    number: int


def joined(texts: list[str]) -> str:
    return "-".join(texts)


def words(form: Any, length: int) -> Flow[Any, Any]:
    return fl.from_items([form(chr(97 + i % 26), i) for i in range(length)])


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("procs", [0, 1])
@pytest.mark.parametrize(
    "collate", [(joined, None), {"text": joined}, {"text": joined, "number": None}]
)
def test_collate_of_components_applies_to_each_separately(collate: Any, procs: int) -> None:
    forms: dict[Any, Any] = {Named: Named, Plain: named_tuple_of(Plain), Word: WordBatch}
    for form, becomes in forms.items():
        flow = words(form, 5).batch(2, collate=collate)
        got = flow.prefetch(procs=procs).collect()
        assert [type(batch) for batch in got] == [becomes] * 3
        by_hand = [
            (joined([text for text, _ in part]), np.array([i for _, i in part]))
            for part in _slices([(chr(97 + i), i) for i in range(5)], 2, False)
        ]
        parts = [tuple(part for _, part in components(batch) or ()) for batch in got]
        assert same(parts, by_hand)


def test_collate_accepts_dicts_and_tuples_of_functions() -> None:
    rows = [{"a": [1], "b": {2}}, {"a": [3], "b": set[int]()}]
    by_name = fl.from_items(rows).batch(2, collate={"b": lists_of_sets}).collect()
    assert same(by_name, [{"a": np.array([[1], [3]]), "b": [[2], []]}])
    pairs = fl.from_items([(1, {2}), (3, set[int]())])
    assert same(
        pairs.batch(2, collate=(None, lists_of_sets)).collect(), [(np.array([1, 3]), [[2], []])]
    )
    collates: list[Any] = [(None, lists_of_sets), {"1": lists_of_sets}]
    for collate in collates:
        got = pairs.batch(2, collate=collate).collect()
        assert same(got, [(np.array([1, 3]), [[2], []])])


def lists_of_sets(sets: list[set[int]]) -> list[list[int]]:
    return [sorted(each) for each in sets]


@pytest.mark.parametrize(
    ("collate", "said"),
    [
        (
            (joined,),
            "element: it has 2 components, and collate 1; pass a function, or None, for each",
        ),
        ((None,) * 3, "element: it has 2 components, and collate 3"),
        ({"texts": joined}, "element: it has the components text, number, and collate names texts"),
        ({"number": len, "x": joined, "y": joined}, "text, number, and collate names x, y"),
    ],
)
def test_collate_of_missing_components_is_refused(collate: Any, said: str) -> None:
    for form in (Named, Plain, Word):
        with pytest.raises(InvalidFlow) as caught:
            words(form, 3).batch(2, collate=collate)
        assert said in str(caught.value)
        assert str(caught.value).startswith("batch(2, collate=")
    unknown: Flow[Any, Any] = fl.from_items([0, 1]).map(lambda i: Named("a", i))
    with pytest.raises(ElementError) as failed:
        unknown.batch(2, collate=collate).collect()
    assert said in str(failed.value.__cause__)


def test_a_single_value_has_no_components_to_collate() -> None:
    flow: Flow[Any, Any] = fl.from_range(3)
    with pytest.raises(InvalidFlow, match="element: int has no components that collate could name"):
        flow.batch(2, collate={"a": len})
    with pytest.raises(ElementError) as failed:
        flow.map(lambda i: i).batch(2, collate=(len,)).collect()
    assert "int has no components that collate could name" in str(failed.value.__cause__)


@pytest.mark.parametrize("form", [Named, Plain])
def test_names_survive_batching(form: Any) -> None:
    batches: Flow[Any, Any] = words(form, 5).batch(2)
    first, *_, last = batches.prefetch(procs=1).collect()
    assert (first.text, first.number.tolist(), last.text) == (["a", "b"], [0, 1], ["e"])
    assert isinstance(first, tuple)
    assert type(first) is type(last) is type(pickle.loads(pickle.dumps(first)))
    assert same(batches.collect()[0], copy.deepcopy(first))
    assert str(batches.spec).endswith("(text: list[str], number: int64[?])")
    padded = words(form, 5).padded_batch(2).collect()[0]
    by_shape: Any = words(form, 5).batch_by_shape(2, lambda word: np.zeros(3)).collect()[0]
    assert padded.number.tolist() == by_shape.number.tolist() == [0, 1]
    filled, mask = words(form, 5).batch(2, remainder="fill").collect()[2]
    assert (filled.text, mask.tolist()) == (["e", "e"], [True, False])
    assert [row.number for row in batches.unbatch().collect()] == [0, 1, 2, 3, 4]
    assert batches.batch(2).collect()[0].number.tolist() == [[0, 1], [2, 3]]
    assert batches.batch(2, collate={"number": len}).collect()[0].number == 2
    assert batches.starmap(Named).map(lambda b: np.asarray(b.number)).collect()[2] == [4]


def test_a_resumed_pass_has_the_names() -> None:
    for form in (Named, Plain):
        batches = words(form, 6).batch(2)
        run = iter(batches)
        next(run)
        rest = list(batches.resume(run.state_dict()))
        assert [batch.text for batch in rest] == [["c", "d"], ["e", "f"]]


@pytest.mark.parametrize("form", [Named, Plain])
def test_named_batches_are_stored(form: Any, tmp_path: Path) -> None:
    batches = words(form, 4).batch(2)
    batches.write_lmdb(tmp_path / "b.lmdb")
    stored = fl.from_lmdb(tmp_path / "b.lmdb", NamedBatch)
    assert [batch.number.tolist() for batch in stored] == [[0, 1], [2, 3]]


def test_names_that_a_named_tuple_cannot_have_are_left_out() -> None:
    @attrs.frozen
    class Private:
        _x: int

    (batch,) = fl.from_items([Private(1), Private(2)]).batch(2).collect()
    assert type(batch) is tuple
    assert batch[0].tolist() == [1, 2]


class Checked(Named):
    def __new__(cls, text: str, number: int) -> Self:
        assert isinstance(number, int)
        return super().__new__(cls, text, number)


def test_the_constructor_of_a_row_does_not_see_a_batch() -> None:
    batches: Flow[Any, Any] = words(Checked, 2).batch(2)
    (batch,) = batches.collect()
    assert batch.number.tolist() == [0, 1]
    assert type(batch) is Checked


def test_components_without_a_function_are_checked_in_advance() -> None:
    flow: Flow[Any, Any] = fl.from_items([({1}, {2})])
    with pytest.raises(InvalidFlow, match=r"element\.1: set does not stack"):
        flow.batch(2, collate=(len, None))
    assert str(words(Named, 4).batch(2, collate=(joined, None)).spec) == (
        "Named(text: str, number: int64[2])"
    )


def test_functions_for_dict_components_must_be_named() -> None:
    flow: Flow[Any, Any] = fl.from_items([{"x": {1}, "y": 1}])
    said = r"a dict go by name; collate must be a dict with the keys 'x', 'y', got a tuple"
    with pytest.raises(InvalidFlow, match=said):
        flow.batch(1, collate=(len, None))


def test_the_dict_of_functions_is_copied() -> None:
    functions: Any = {"text": joined}
    flow = words(Named, 2).batch(2, collate=functions)
    functions.clear()
    assert flow.collect()[0][0] == "a-b"
    assert repr(flow).endswith(".batch(2, collate={'text': joined})")
    pair = words(Named, 2).batch(2, collate=(None, joined))
    assert repr(pair).endswith(".batch(2, collate=(None, joined))")


class TestEffects:
    @pytest.mark.parametrize(
        ("length", "n", "drop", "loses"),
        [(6, 3, False, False), (7, 3, False, False), (6, 3, True, False), (7, 3, True, True)],
    )
    def test_a_dropped_remainder_is_an_effect(
        self, length: int, n: int, drop: bool, loses: bool
    ) -> None:
        flow = fl.from_range(length).batch(n, drop_remainder=drop)
        assert flow.effects == ({Resampled} if loses else frozenset())

    def test_an_endless_flow_has_no_remainder(self) -> None:
        flow = fl.from_range(7).repeat()
        assert flow.batch(3, drop_remainder=True).effects == flow.effects


class TestSpec:
    @pytest.mark.parametrize(
        ("length", "n", "drop", "spec"),
        [
            (6, 3, False, "int64[3]"),
            (7, 3, False, "int64[?]"),
            (7, 3, True, "int64[3]"),
            (2, 3, False, "int64[?]"),
        ],
    )
    def test_the_spec_has_the_size_of_every_batch(
        self, length: int, n: int, drop: bool, spec: str
    ) -> None:
        assert str(fl.from_range(length).batch(n, drop_remainder=drop).spec) == spec

    def test_the_spec_of_an_endless_flow_is_full(self) -> None:
        assert str(fl.from_range(7).repeat().batch(3).spec) == "int64[3]"
        assert str(fl.from_range(7).batch(3).repeat().spec) == "int64[?]"

    def test_the_spec_of_a_collate_is_its_annotation(self) -> None:
        def total(rows: Any) -> float:
            raise AssertionError("not asked")

        assert str(fl.from_range(5).batch(2, collate=total).spec) == "float"
        assert str(fl.from_range(5).batch(2, collate=lambda rows: len(rows)).spec) == "int"


class TestBadArguments:
    @pytest.mark.parametrize("n", [0, -1, 2.5, True, None, "2"])
    def test_invalid_n_is_refused(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).batch(n)
        assert str(caught.value) == f"batch: n must be an int >= 1, got {n!r}"

    def test_invalid_drop_remainder_is_refused(self) -> None:
        flow: Any = fl.from_range(3)
        with pytest.raises(InvalidFlow) as caught:
            flow.batch(2, drop_remainder=1)
        assert str(caught.value) == "batch: drop_remainder must be True or False, got 1"

    def test_invalid_collate_is_refused(self) -> None:
        flow: Any = fl.from_range(3)
        with pytest.raises(InvalidFlow) as caught:
            flow.batch(2, collate=3)
        assert str(caught.value) == (
            "batch: collate must be a function of the list of rows, or a dict or tuple of such "
            "functions, one for each component; got 3"
        )

    def test_elements_known_not_to_stack_are_refused(self) -> None:
        flow: Any = fl.from_items([(1, {2})])
        with pytest.raises(InvalidFlow, match=r"batch\(2\): element\.1: set does not stack"):
            flow.batch(2)


def test_rows_that_do_not_stack_are_an_error() -> None:
    flow = fl.from_range(5).map(lambda i: np.zeros(3 if i < 3 else 4)).batch(2)
    run = iter(flow)
    next(run)
    with pytest.raises(ElementError, match=r"batch\(2\) failed on element 1") as caught:
        next(run)
    assert caught.value.origin == "row 2 of from_range(5) to row 3 of from_range(5)"
    assert isinstance(caught.value.__cause__, SpecMismatch)
    assert "row 0 of the batch is float64[3], row 1 is float64[4]" in str(caught.value.__cause__)


def test_the_origin_of_the_last_group_has_its_rows() -> None:
    node = fl.from_items([1, 2, 3]).batch(2).node
    assert node.origin(0, 0) == "row 0 of from_items(3 items) to row 1 of from_items(3 items)"
    assert node.origin(0, 1) == "row 2 of from_items(3 items)"


def test_rows_of_a_file_with_any_name_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cat to dog.lmdb"
    fl.from_range(6).write_lmdb(path)
    source: Flow[Any, Any] = fl.from_lmdb(path)
    row = f"of {source.node.title}"
    assert source.batch(3).node.origin(0, 1) == f"row 3 {row} to row 5 {row}"
    twice = source.batch(2, collate=list).batch(2, collate=list).node
    assert twice.origin(0, 0) == f"row 0 {row} to row 3 {row}"


def test_tuples_of_any_length_stack() -> None:
    flow = fl.from_range(3).map(lambda i: (np.int8(i),) * 6).batch(3)
    assert [c.tolist() for c in flow.collect()[0]] == [[0, 1, 2]] * 6


@attrs.frozen
class PointBatch:
    x: NDArray[np.int64]


@attrs.frozen
class Point(fl.Record[PointBatch]):
    x: int


def test_a_record_stacks_into_its_batch_type() -> None:
    batches = fl.from_items([Point(1), Point(2), Point(3)]).batch(2).collect()
    assert [type(b) for b in batches] == [PointBatch, PointBatch]
    assert [b.x.tolist() for b in batches] == [[1, 2], [3]]


class TestWindow:
    @given(lengths, sizes, sizes)
    def test_window_yields_every_full_window(self, length: int, size: int, stride: int) -> None:
        flow = fl.from_range(length).window(size, stride)
        items = list(range(length))
        starts = [i for i in range(0, length, stride) if i + size <= length]
        expected = [tuple(items[i : i + size]) for i in starts]
        assert list(flow.node.reference(0)) == list(enumerate(expected))
        assert flow.collect() == expected
        assert len(flow) == len(expected)

    @pytest.mark.parametrize("procs", [0, 1])
    def test_window_of_a_stream_with_workers(self, procs: int) -> None:
        flow = fl.from_iterable(range(8)).window(3, stride=3).map(sum).prefetch(procs=procs)
        assert flow.collect() == [3, 12]

    @given(lengths, sizes, sizes, sizes)
    def test_window_of_a_stream(self, length: int, size: int, stride: int, modulus: int) -> None:
        flow = fl.from_iterable(range(length)).filter(lambda i: i % modulus != 1)
        items = [i for i in range(length) if i % modulus != 1]
        starts = [i for i in range(0, len(items), stride) if i + size <= len(items)]
        assert flow.window(size, stride).collect() == [tuple(items[i : i + size]) for i in starts]
        assert flow.window(size, stride).effects == {Resampled, Unsized}

    def test_window_reads_only_the_elements_it_yields(self) -> None:
        stream = iter(range(10))
        run = iter(fl.from_iterable(stream).window(2, stride=3))
        assert [next(run), next(run)] == [(0, 1), (3, 4)]
        assert next(stream) == 5

    def test_window_keeps_elements_unchanged(self) -> None:
        items = [{"a": "x"}, {"a": "y"}]
        assert fl.from_items(items).window(2).collect()[0] == (items[0], items[1])

    def test_window_resamples(self) -> None:
        assert fl.from_range(6).window(2, 2).effects == {Resampled}
        assert fl.from_range(6).shuffle().window(2).effects == {Resampled, Reordered}
        assert fl.from_range(6).repeat().window(2).effects == {Resampled, Endless}

    def test_window_of_an_endless_flow(self) -> None:
        flow = fl.from_range(3).repeat().window(2, stride=2).take(3)
        assert flow.collect() == [(0, 1), (2, 0), (1, 2)]

    def test_windows_of_windows(self) -> None:
        flow = fl.from_range(5).window(2).window(2, 2)
        assert flow.collect() == [((0, 1), (1, 2)), ((2, 3), (3, 4))]

    def test_windows_can_be_stacked(self) -> None:
        batches = fl.from_range(5).map(lambda i: (i, i / 2)).window(2, 3).map(fl.stack).collect()
        assert [tuple(part.tolist() for part in b) for b in batches] == [
            ([0, 1], [0.0, 0.5]),
            ([3, 4], [1.5, 2.0]),
        ]

    def test_window_reads_late(self) -> None:
        flow = fl.from_range(10**12).window(2).shuffle(seed=3).take(2)
        assert flow.node.indexable
        assert all(b == a + 1 for a, b in flow)

    def test_window_has_a_tuple_spec(self) -> None:
        assert str(fl.from_range(5).window(3).spec) == "(int, int, int)"
        flow = fl.from_range(5).map(lambda i: np.zeros(2, np.uint8)).window(2)
        assert str(flow.spec) == "(uint8[2], uint8[2])"

    def test_errors_name_the_rows_of_a_window(self) -> None:
        flow = fl.from_items([1, 2, 3, 4, 0]).window(2, 3).map(lambda w: w[0] // w[1])
        with pytest.raises(ElementError) as caught:
            flow.collect()
        row = "row {} of from_items(5 items)"
        assert caught.value.origin == f"{row.format(3)} to {row.format(4)}"
        assert fl.from_items([1, 2]).window(1).node.origin(0, 1) == "row 1 of from_items(2 items)"
        gaps = fl.from_items([1, 2]).filter(bool).window(1).node
        assert gaps.origin(0, 1) == "element 1 of window(1)"

    def test_window_title(self) -> None:
        assert repr(fl.from_range(3).window(2)) == "from_range(3).window(2)"
        assert repr(fl.from_range(3).window(2, stride=4)) == "from_range(3).window(2, stride=4)"

    @pytest.mark.parametrize("bad", [0, -1, 2.5, True, None, "2"])
    def test_window_refuses_invalid_sizes(self, bad: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).window(bad)
        assert str(caught.value) == f"window: size must be an int >= 1, got {bad!r}"
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).window(2, bad)
        assert str(caught.value) == f"window: stride must be an int >= 1, got {bad!r}"


def test_collate_of_a_missing_number_is_refused() -> None:
    rows: Any = fl.from_items([(1, "a")] * 2)
    with pytest.raises(InvalidFlow, match="components 0, 1, and collate names 2"):
        rows.batch(2, collate={2: list})


class TestFilledBatches:
    @pytest.mark.parametrize("procs", [0, 2])
    def test_all_batches_have_one_shape_and_the_mask_marks_rows(self, procs: int) -> None:
        flow = fl.from_range(10).map(image).batch(4, remainder="fill").prefetch(procs=procs)
        batches = flow.collect()
        assert [batch.shape for batch, _ in batches] == [(4, 64, 64)] * 3
        assert [mask.tolist() for _, mask in batches[1:]] == [
            [True] * 4,
            [True, True, False, False],
        ]
        last, mask = batches[-1]
        assert last[mask][:, 0, 0].tolist() == [8, 9]
        assert last[:, 0, 0].tolist() == [8, 9, 9, 9]

    def test_the_spec_has_no_unknown_size(self) -> None:
        flow = fl.from_items([1] * 10).filter(bool).map(image).batch(4, remainder="fill")
        assert "?" not in str(flow.spec)
        assert flow.effects == {fl.Unsized}
        assert len(fl.from_range(9).batch(4, remainder="fill")) == 3

    def test_text_and_dicts_are_filled(self) -> None:
        rows = fl.from_items([{"x": i, "name": str(i)} for i in range(3)])
        (_, first), (batch, mask) = rows.batch(2, remainder="fill").collect()
        assert first.all()
        assert (batch["x"].tolist(), batch["name"], mask.tolist()) == (
            *([2, 2], ["2", "2"]),
            [True, False],
        )

    def test_a_resume_yields_the_filled_batch(self) -> None:
        flow = fl.from_range(5).batch(2, remainder="fill")
        run = iter(flow)
        next(run)
        next(run)
        ((batch, mask),) = flow.resume(run.state_dict())
        assert (batch.tolist(), mask.tolist()) == ([4, 4], [True, False])

    def test_invalid_remainders_are_refused(self) -> None:
        flow: Any = fl.from_range(3)
        with pytest.raises(fl.InvalidFlow, match="remainder must be None or 'fill', got 'drop'"):
            flow.batch(2, remainder="drop")
        with pytest.raises(fl.InvalidFlow, match="write one of them"):
            flow.batch(2, remainder="fill", drop_remainder=True)


def image(i: int) -> NDArray[np.float32]:
    return np.full((64, 64), i, np.float32)


def test_batches_of_two_record_classes_keep_their_classes() -> None:
    class Left(NamedTuple):
        x: int

    class Right(NamedTuple):
        x: int

    left: Any = fl.from_range(2).map(Left)
    right: Any = fl.from_range(2).map(Right)
    found = left.batch(2).concat(right.batch(2)).collect()
    assert [type(batch) for batch in found] == [Left, Right]
    with pytest.raises(fl.ElementError, match=r"row 0 of the batch is Left.*row 1 is Right"):
        left.take(1).concat(right).batch(2).collect()

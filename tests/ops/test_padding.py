"""padded_batch, compared with np.pad of slices."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import ElementError, Endless, InvalidFlow, Resampled, SpecMismatch, Unsized
from flowdsl.testing.elements import Named, same

shapes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)
sizes = st.integers(1, 5)


def filled(shapes: list[tuple[int, int]]) -> list[NDArray[np.int16]]:
    return [np.full(shape, i + 1, np.int16) for i, shape in enumerate(shapes)]


def padded(rows: list[NDArray[Any]], value: Any) -> NDArray[Any]:
    """The model: ``np.pad`` of each row."""
    most = np.max([row.shape for row in rows], axis=0)
    ends = [[(0, m - s) for m, s in zip(most, row.shape, strict=True)] for row in rows]
    each = [np.pad(r, e, constant_values=value) for r, e in zip(rows, ends, strict=True)]
    return np.stack(each)


def slices(items: list[Any], n: int, drop: bool = False) -> list[list[Any]]:
    every = [items[i : i + n] for i in range(0, len(items), n)]
    return [part for part in every if len(part) == n or not drop]


@given(shapes, sizes, st.booleans(), st.integers(-4, 4))
def test_arrays_are_padded_on_the_right_to_the_largest(
    shapes: list[tuple[int, int]], n: int, drop: bool, value: int
) -> None:
    items = filled(shapes)
    flow = fl.from_items(items).padded_batch(n, drop_remainder=drop, padding=value)
    expected = [padded(part, value) for part in slices(items, n, drop)]
    assert same(flow.collect(), expected)
    assert same([x for _, x in flow.node.reference(0)], expected)
    assert len(flow) == len(expected)
    loses = drop and (not items or len(items) % n)
    assert flow.effects == ({Resampled} if loses else frozenset())


@given(shapes, sizes, sizes)
def test_padded_batch_after_a_filter(shapes: list[tuple[int, int]], n: int, modulus: int) -> None:
    items = filled(shapes)
    flow = fl.from_items(items).filter(lambda x: x.size % modulus != 1)
    kept = [x for x in items if x.size % modulus != 1]
    batches = flow.padded_batch(n, padding=7)
    assert same(batches.collect(), [padded(part, 7) for part in slices(kept, n)])
    assert batches.effects == {Unsized}


@given(shapes, sizes)
def test_every_component_has_its_own_padding(shapes: list[tuple[int, int]], n: int) -> None:
    items = [
        {
            "id": i,
            "pair": (x, x[:, :1].astype(np.float32)),
            "name": np.array(["a"] * (i % 3), "<U1"),
        }
        for i, x in enumerate(filled(shapes))
    ]
    by_name = {"id": None, "pair": (-1, np.nan), "name": ""}
    expected: list[dict[str, Any]] = [
        {
            "id": np.array([row["id"] for row in part]),
            "pair": (
                padded([row["pair"][0] for row in part], -1),
                padded([row["pair"][1] for row in part], np.nan),
            ),
            "name": padded([row["name"] for row in part], ""),
        }
        for part in slices(items, n)
    ]
    got: list[Any] = fl.from_items(items).pipe(_padded, n, by_name).collect()
    assert len(got) == len(expected)
    for ours, model in zip(got, expected, strict=True):
        assert same(ours["id"], model["id"])
        assert same(ours["pair"][0], model["pair"][0])
        np.testing.assert_array_equal(ours["pair"][1], model["pair"][1], strict=True)
        assert same(ours["name"], model["name"])


def _padded(flow: Any, n: int, padding: Any) -> Any:
    return flow.padded_batch(n, padding=padding)


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: np.int64


@attrs.frozen
class RowBatch:
    x: NDArray[np.uint8]
    _y: NDArray[np.uint8]


@attrs.frozen
class Row(fl.Record[RowBatch]):
    x: NDArray[np.uint8]
    _y: NDArray[np.uint8]


u8 = [np.ones(2, np.uint8), np.ones(1, np.uint8)]


def test_elements_become_the_same_as_in_batch() -> None:
    samples: Any = fl.from_items([Sample(u8[0], np.int64(3)), Sample(u8[1], np.int64(4))])
    image, label = samples.padded_batch(2).collect()[0]
    assert (image.tolist(), label.tolist()) == ([[1, 1], [1, 0]], [3, 4])
    assert type(samples.padded_batch(2).collect()[0]) is Sample
    paddings: list[Any] = [(9, None), {"image": 9, "label": None}]
    for padding in paddings:
        assert samples.padded_batch(2, padding=padding).collect()[0][0].tolist() == [[1, 1], [1, 9]]

    batch = fl.from_items([Row(u8[0], u8[1]), Row(u8[1], u8[0])]).padded_batch(2).collect()[0]
    assert type(batch) is RowBatch
    assert (batch.x.tolist(), batch._y.tolist()) == ([[1, 1], [1, 0]], [[1, 0], [1, 1]])


def test_padded_batches_use_allocate_for_memory() -> None:
    given_out: list[NDArray[Any]] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    node: Any = fl.from_items(u8).padded_batch(2, padding=3).node
    assert node.gather(u8, allocate) is given_out[0]
    assert given_out[0].tolist() == node.gather(u8).tolist() == [[1, 1], [1, 3]]


def test_a_dict_of_paddings_is_copied() -> None:
    padding = {"x": 5}
    flow = fl.from_items([{"x": u8[0]}, {"x": u8[1]}]).padded_batch(2, padding=padding)
    padding["x"] = 6
    assert flow.collect()[0]["x"].tolist() == [[1, 1], [1, 5]]


def wide(i: int) -> Annotated[NDArray[np.uint8], fl.Shape(2, None)]:
    return np.zeros((2, i), np.uint8)


class TestSpec:
    def test_declared_sizes_are_kept(self) -> None:
        flow = fl.from_range(4).map(wide)
        assert str(flow.padded_batch(2).spec) == "uint8[2, 2, ?]"
        assert str(flow.padded_batch(3).spec) == "uint8[?, 2, ?]"
        assert str(flow.padded_batch(3, drop_remainder=True).spec) == "uint8[3, 2, ?]"
        assert str(flow.repeat().padded_batch(3).spec) == "uint8[3, 2, ?]"

    def test_sizes_of_one_element_are_not_assumed_for_others(self) -> None:
        flow = (
            fl.from_range(4)
            .map(lambda i: (np.zeros((i, 3), np.uint8), np.int64(i)))
            .padded_batch(2)
        )
        assert str(flow.spec) == "(uint8[2, ?, ?], int64[2])"


class TestRefusals:
    @pytest.mark.parametrize("n", [0, -1, 2.5, True, None, "2"])
    def test_invalid_n_is_refused(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(u8).padded_batch(n)
        assert str(caught.value) == f"padded_batch: n must be an int >= 1, got {n!r}"

    def test_invalid_drop_remainder_is_refused(self) -> None:
        flow: Any = fl.from_items(u8)
        with pytest.raises(InvalidFlow) as caught:
            flow.padded_batch(2, drop_remainder=1)
        assert str(caught.value) == "padded_batch: drop_remainder must be True or False, got 1"

    @pytest.mark.parametrize(
        ("padding", "given"),
        [([0], "[0]"), (object, "<class 'object'>"), ((0, [1]), "[1]"), ({"a": {1}}, "{1}")],
    )
    def test_invalid_padding_is_refused(self, padding: Any, given: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(u8).padded_batch(2, padding=padding)
        assert str(caught.value) == (
            "padded_batch: padding must be a number, text, a NumPy scalar, None, or a tuple or "
            f"dict of them, got {given}"
        )

    @pytest.mark.parametrize(
        ("padding", "said"),
        [
            (300, "element.0: padding must be a value that uint8 has, got 300"),
            ((0, 0.5, 0), "element.1: padding must be a value that int32 has, got 0.5"),
            (
                (0, 0, 0.1),
                (
                    "element.2: padding must be a value that float32 has, got 0.1; "
                    "the nearest is np.float32(0.1)"
                ),
            ),
            ((0, 0), "element: 3 components, and padding has 2"),
            ((0, 0, (0,)), "element.2: a single component, and padding has several: (0,)"),
            ({"x": 0}, "element: components 0, 1, 2, and padding names x"),
        ],
    )
    def test_a_padding_known_not_to_fit_is_refused(self, padding: Any, said: str) -> None:
        one = np.ones(2)
        row = (one.astype(np.uint8), one.astype(np.int32), one.astype(np.float32))
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items([row]).padded_batch(2, padding=padding)
        title, _, reason = str(caught.value).partition("): ")
        assert title == f"padded_batch(2, padding={padding!r}"
        assert reason == said

    def test_a_padding_that_does_not_fit_is_an_error(self) -> None:
        flow = fl.from_range(5).map(lambda i: np.zeros(i, np.uint8)).padded_batch(2, padding=-1)
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert caught.value.origin == "row 0 of from_range(5) to row 1 of from_range(5)"
        assert str(caught.value.__cause__) == (
            "element: padding must be a value that uint8 has, got -1"
        )

    def test_a_tuple_of_paddings_for_a_dict_is_refused(self) -> None:
        rows = fl.from_items([{"x": u8[0], "y": u8[1]}, {"y": u8[1], "x": u8[0]}])
        said = r"a dict go by name; padding must be a dict with the keys 'x', 'y', got a tuple"
        with pytest.raises(InvalidFlow, match=said):
            rows.padded_batch(1, padding=(1, 2))
        unknown = fl.from_iterable(iter(rows)).padded_batch(1, padding=(1, 2))
        with pytest.raises(ElementError) as caught:
            unknown.collect()
        assert "a dict go by name" in str(caught.value.__cause__)

    def test_padding_none_forbids_padding(self) -> None:
        rows = [(u8[0], u8[0]), (u8[0], u8[1])]
        flow = fl.from_items(rows)
        assert len(flow.padded_batch(2, padding=(None, 0)).collect()) == 1
        with pytest.raises(ElementError) as caught:
            flow.padded_batch(2, padding=(0, None)).collect()
        cause = caught.value.__cause__
        assert isinstance(cause, SpecMismatch)
        assert "element.1: row 0 of the batch is uint8[2], row 1 is uint8[1]" in str(cause)

    def test_elements_known_not_to_stack_are_refused(self) -> None:
        flow: Any = fl.from_items([(1, {2})])
        with pytest.raises(InvalidFlow, match=r"element\.1: set does not stack"):
            flow.padded_batch(2)


def test_padded_batch_title() -> None:
    flow = fl.from_items(u8)
    assert repr(flow.padded_batch(2)).endswith(".padded_batch(2)")
    assert repr(flow.padded_batch(2, drop_remainder=True, padding=None)).endswith(
        ".padded_batch(2, drop_remainder=True, padding=None)"
    )
    assert repr(flow.padded_batch(2, padding=np.uint8(3))).endswith("padding=np.uint8(3))")


def test_an_endless_flow_has_no_remainder() -> None:
    flow = fl.from_items(u8).repeat().padded_batch(3, drop_remainder=True)
    assert flow.effects == {Resampled, Endless}


@pytest.mark.parametrize("procs", [0, 1])
def test_padded_batch_in_a_worker(procs: int) -> None:
    flow = fl.from_range(6).map(lambda i: np.full(i, i)).padded_batch(2, padding=-1)
    assert [b.tolist() for b in flow.prefetch(procs=procs)] == [
        [[-1], [1]],
        [[2, 2, -1], [3, 3, 3]],
        [[4, 4, 4, 4, -1], [5, 5, 5, 5, 5]],
    ]


def test_a_batch_of_named_tuples_keeps_their_names() -> None:
    rows: fl.Flow[Any, Any] = fl.from_items(
        [Named(np.int32(i), np.zeros(i, np.float32)) for i in range(1, 4)]
    )
    batches = rows.padded_batch(2)
    again = batches.take(1).padded_batch(1, padding={"data": -1.0, "id": -1})
    assert [part.shape for part in again.collect()[0]] == [(1, 2), (1, 2, 2)]
    with pytest.raises(InvalidFlow, match="components id, data, and padding names 1, 0"):
        batches.padded_batch(1, padding={"1": -1, "0": -1.0})


class TestLength:
    def test_all_batches_have_the_length(self) -> None:
        words = fl.from_items([np.arange(n) for n in (3, 1, 2, 4)]).padded_batch(2, length=5)
        assert [batch.shape for batch in words] == [(2, 5), (2, 5)]
        assert str(words.spec) == "int64[2, 5]"
        assert words.collect()[1].tolist() == [[0, 1, 0, 0, 0], [0, 1, 2, 3, 0]]

    def test_a_length_for_each_component(self) -> None:
        rows = fl.from_items([{"ids": np.arange(n), "label": np.zeros(2)} for n in (3, 1)])
        (batch,) = rows.padded_batch(2, length={"ids": 4, "label": None})
        assert (batch["ids"].shape, batch["label"].shape) == ((2, 4), (2, 2))

    def test_a_longer_array_is_an_error_that_names_its_row(self) -> None:
        rows = fl.from_range(6).map(lambda i: np.zeros(i)).padded_batch(2, length=3)
        with pytest.raises(fl.ElementError) as caught:
            rows.collect()
        assert "an array of 5 entries is longer than length=3" in str(caught.value.__cause__)

    def test_a_length_known_not_to_fit_is_refused(self) -> None:
        with pytest.raises(fl.InvalidFlow, match="an array of 8 entries is longer than length=3"):
            fl.fake([(8,)], dtype="float32").padded_batch(2, length=3)

    @pytest.mark.parametrize("wrong", [-1, 1.5, "3", True, [3]])
    def test_invalid_lengths_are_refused(self, wrong: Any) -> None:
        with pytest.raises(fl.InvalidFlow, match="padded_batch: length must be an int >= 0"):
            fl.from_range(3).map(lambda i: np.zeros(i)).padded_batch(2, length=wrong)

    def test_a_length_that_needs_padding_is_refused_where_padding_is_forbidden(self) -> None:
        fixed = fl.fake([(3,)], size=2)
        with pytest.raises(fl.InvalidFlow, match="length=4 cannot be reached by an array of 3"):
            fixed.padded_batch(2, padding=None, length=4)
        ((batch,),) = fixed.padded_batch(2, padding=None, length=3)
        assert batch.shape == (2, 3)
        rows = fl.from_range(2).map(lambda i: np.zeros(3))
        with pytest.raises(fl.ElementError) as caught:
            rows.padded_batch(2, padding=None, length=4).collect()
        assert "length=4 cannot be reached" in str(caught.value.__cause__)

    def test_a_component_without_an_axis_has_no_length(self) -> None:
        rows = fl.from_items([(np.arange(3), 1), (np.arange(2), 2)])
        ((ids, labels),) = rows.padded_batch(2, padding=(0, None), length=4)
        assert (ids.shape, labels.tolist()) == ((2, 4), [1, 2])

    def test_numpy_sizes_are_in_the_spec(self) -> None:
        rows = fl.from_items([np.arange(3)])
        size: Any = np.int64(4)
        assert str(rows.padded_batch(2, length=size).spec) == "int64[?, 4]"

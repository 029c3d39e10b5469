"""Elements of any spec enter the graph unchanged; a mismatch is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flowdsl as fl
from flowdsl.tensorflow.inputs import FeedInput, InputSource, QueueInput, TFDatasetInput
from tests.sampling import examples

DTYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "complex128"]
TEXT = np.dtype(object)

MAKE: dict[str, Callable[[Any, Any], InputSource]] = {
    "queue": lambda flow, spec: QueueInput(flow, spec=spec, capacity=3),
    "feed": lambda flow, spec: FeedInput(flow, spec=spec),
    "dataset input": lambda flow, spec: TFDatasetInput(flow, spec=spec, capacity=3),
}


@attrs.frozen
class Drawn:
    """Some elements, and the declared specs of their components."""

    rows: list[dict[str, Any]]
    spec: list[tf.TensorSpec]


@st.composite
def components(draw: st.DrawFn, n: int) -> tuple[tf.TensorSpec, list[Any]]:
    """A spec, and a value of it for each of ``n`` elements."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES))) if draw(st.integers(0, 3)) else TEXT
    rank = draw(st.integers(0, 3))
    dims = draw(st.lists(st.none() | st.integers(0, 3), min_size=rank, max_size=rank))
    declared = None if dims == [None] * rank and draw(st.booleans()) else dims
    values = []
    for _ in range(n):
        ranked = dims if declared is not None else draw(st.lists(st.none(), max_size=2))
        shape = tuple(draw(st.integers(0, 3)) if dim is None else dim for dim in ranked)
        values.append(draw(_arrays(dtype, shape)))
    return tf.TensorSpec(declared, tf.string if dtype == TEXT else tf.as_dtype(dtype)), values


def _arrays(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    if dtype != TEXT:
        return hnp.arrays(dtype, shape)
    return hnp.arrays("S4", shape, elements=st.binary(max_size=4).filter(lambda b: b[-1:] != b"\0"))


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    n = draw(st.integers(1, 5))
    parts = draw(st.lists(components(n), min_size=1, max_size=3))
    names = ["x", "y", "z"][: len(parts)]
    rows = [
        {name: values[i] for name, (_, values) in zip(names, parts, strict=True)} for i in range(n)
    ]
    spec = [
        tf.TensorSpec(s.shape, s.dtype, name) for name, (s, _) in zip(names, parts, strict=True)
    ]
    return Drawn(rows, spec)


def taken(source: InputSource) -> list[list[Any]]:
    """The elements of a pass, as arrays."""
    step = tf.function(input_signature=source.signature)(source.tensors)
    with source:
        source.reset()
        return [[x.numpy() for x in step(*source.next_args())] for _ in range(source.size())]


@pytest.mark.parametrize("name", MAKE)
@settings(max_examples=examples(80))
@given(data=drawn())
def test_elements_arrive_unchanged(name: str, data: Drawn) -> None:
    flow = fl.from_items(data.rows).map(_unknown)
    source = MAKE[name](flow, data.spec)
    assert [tuple(s) for s in map(_shape_and_dtype, source.specs)] == [
        tuple(s) for s in map(_shape_and_dtype, data.spec)
    ]
    for got, row in zip(taken(source), data.rows, strict=True):
        for one, other in zip(got, row.values(), strict=True):
            same = one == other.tolist() if other.shape == () else np.array_equal(one, other)
            if other.dtype.kind in "fc":
                same = np.array_equal(one, other, equal_nan=True)
            assert same, (one, other)


@pytest.mark.parametrize("name", MAKE)
@settings(max_examples=examples(80))
@given(data=drawn(), where=st.data())
def test_a_component_of_another_rank_or_dtype_is_named(
    name: str, data: Drawn, where: st.DataObject
) -> None:
    bad = where.draw(st.integers(0, len(data.rows) - 1))
    part = where.draw(st.sampled_from(sorted(data.rows[0])))
    right = data.rows[bad][part]
    known = dict(zip(data.rows[0], data.spec, strict=True))[part].shape.rank is not None
    deeper = known and where.draw(st.booleans())
    wrong = right[np.newaxis] if deeper else np.zeros(right.shape, "M8[s]")
    rows = [row | {part: wrong} if i == bad else row for i, row in enumerate(data.rows)]
    element = f" of element {bad} is " if bad else ""  # what the first is, the flow may know
    with pytest.raises(fl.SpecMismatch, match=rf"component '{part}'{element}"):
        taken(MAKE[name](fl.from_items(rows).map(_unknown), data.spec))


def _unknown(row: dict[str, Any]) -> Any:
    return row


def _shape_and_dtype(spec: tf.TensorSpec) -> tuple[str | None, Any, tf.DType]:
    return spec.name, spec.shape.as_list() if spec.shape.rank is not None else None, spec.dtype


@pytest.mark.parametrize(
    ("ragged", "message"),
    [
        (tf.ragged.constant([[1], [2, 3]]), "RaggedTensor"),
        (np.array([[1], [2, 3]], object), "(array of objects|object)"),
        ([[1], [2, 3]], "list"),
    ],
    ids=["ragged tensor", "array of objects", "list of lists"],
)
@pytest.mark.parametrize("name", MAKE)
def test_ragged_array_is_refused_with_the_reason(name: str, ragged: Any, message: str) -> None:
    for declared in (None, [tf.TensorSpec(None, tf.int64, "x")]):
        with pytest.raises(fl.SpecMismatch, match=rf"'x'.*{message}"):
            taken(MAKE[name](fl.from_items([{"x": ragged}]), declared))


def test_ragged_dataset_is_refused_with_a_remedy() -> None:
    ragged = tf.data.Dataset.from_tensors({"x": tf.ragged.constant([[1], [2, 3]])})
    with pytest.raises(fl.SpecMismatch, match=r"component 'x' is RaggedTensorSpec.*to_tensor\(\)"):
        TFDatasetInput(ragged)

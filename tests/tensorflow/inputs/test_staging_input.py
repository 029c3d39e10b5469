"""StagingInput: staged elements are neither lost nor counted twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import (
    EndOfPass,
    FeedInput,
    QueueInput,
    StagingInput,
    remap_input_source,
)
from tests.sampling import examples


def steps_of(source: StagingInput, together: int) -> Any:
    @tf.function(input_signature=source.signature)
    def step(*args: tf.Tensor) -> list[tf.Tensor]:
        return [source.tensors(*args)[0] for _ in range(together)]

    return lambda: [int(x) for x in step(*source.next_args(together))]


@settings(max_examples=examples(80))
@given(
    st.integers(0, 15),
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(st.integers(0, 6), max_size=3),
)
def test_every_step_gets_its_elements(n: int, ahead: int, together: int, resets: list[int]) -> None:
    flow = fl.from_range(n)
    with StagingInput(QueueInput(flow), ahead) as source:
        step = steps_of(source, together)
        got, left = list[int](), -1
        for epoch, taken in enumerate([*resets, n]):
            source.reset(epoch)
            got, left = [], -1
            try:
                while len(got) < taken * together or taken == n:
                    got += step()
            except EndOfPass as end:
                left = end.left
            assert got == list(range(len(got)))
        assert (len(got), left) == (n - n % together, n % together)


@settings(max_examples=examples(80))
@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 8))
def test_staged_elements_count_as_unread(ahead: int, together: int, steps: int) -> None:
    flow = fl.from_range(60).filter(lambda i: i % 5 != 0).shuffle(8, seed=2)
    expected = list(flow)
    with StagingInput(QueueInput(flow, capacity=7), ahead) as source:
        source.reset()
        step = steps_of(source, together)
        got = [x for _ in range(steps) for x in step()]
        state = source.state_dict()
    with StagingInput(QueueInput(flow, capacity=7), ahead) as source:
        source.restore(state)
        step = steps_of(source, together)
        while len(got) + together <= len(expected):
            got += step()
    assert got == expected[: len(got)]


def test_any_tensor_is_staged() -> None:
    rows = [(f"text {i}", np.full((i, 2), i, np.float32), i % 2 == 0) for i in range(6)]
    spec = [
        tf.TensorSpec((), tf.string),
        tf.TensorSpec((None, 2), tf.float32),
        tf.TensorSpec(None, tf.bool),
    ]
    with StagingInput(QueueInput(fl.from_items(rows), spec=spec), device="/cpu:0") as source:
        step = tf.function(input_signature=source.signature)(source.tensors)
        source.reset()
        for row in rows:
            text, array, flag = step(*source.next_args())
            assert (bytes(text.numpy()), bool(flag)) == (row[0].encode(), row[2])
            np.testing.assert_array_equal(array.numpy(), row[1], strict=True)


def test_two_staging_inputs_serve_two_steps() -> None:
    one = StagingInput(QueueInput(fl.from_range(5)))
    other = StagingInput(QueueInput(fl.from_range(5).map(lambda i: i + 100)))
    with one, other:
        one.reset()
        other.reset()
        first, second = steps_of(one, 1), steps_of(other, 1)
        assert [x for _ in range(5) for x in (*first(), *second())] == [
            x for i in range(5) for x in (i, i + 100)
        ]


def test_it_is_used_without_a_function_too() -> None:
    with StagingInput(QueueInput(fl.from_range(5)), 2) as source:
        source.reset()
        got = []
        for _ in range(2):
            args = source.next_args(2)
            got += [int(source.tensors(*args)[0]) for _ in range(2)]
        assert got == [0, 1, 2, 3]


def test_unstageable_input_is_refused_with_the_reason() -> None:
    flow = fl.from_range(3)
    with pytest.raises(fl.InvalidFlow, match=r"got Flow; to read a flow, pass QueueInput\(flow\)"):
        StagingInput(flow)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(fl.InvalidFlow, match="FeedInput passes its elements as arguments"):
        StagingInput(FeedInput(flow))
    staged = StagingInput(QueueInput(flow))
    for source in (staged, remap_input_source(staged, ["n"])):
        with pytest.raises(fl.InvalidFlow, match="is staged already"):
            StagingInput(source)
    with pytest.raises(fl.InvalidFlow, match="nr_stage must be an int >= 1, got 0"):
        StagingInput(QueueInput(flow), 0)


def test_steps_of_another_size_wait_for_what_is_staged() -> None:
    with StagingInput(QueueInput(fl.from_range(9))) as source:
        source.reset()
        source.next_args(2)
        with pytest.raises(fl.InvalidFlow, match=r"are for steps of 2 element\(s\), not"):
            source.next_args(1)

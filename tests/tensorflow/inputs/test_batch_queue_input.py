"""BatchQueueInput: complete batches equal those of ``batch``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import BatchQueueInput, EndOfPass
from tests.sampling import examples


def batches(source: BatchQueueInput, together: int = 1) -> tuple[list[Any], int]:
    """Return the batches of each step of a pass, and the number of rows left."""

    @tf.function(input_signature=source.signature)
    def step(*args: tf.Tensor) -> list[list[tf.Tensor]]:
        return [source.tensors(*args) for _ in range(together)]

    got: list[Any] = []
    source.reset()
    try:
        while True:
            made = step(*source.next_args(together))
            got += [[tensor.numpy() for tensor in one] for one in made]
    except EndOfPass as end:
        return got, end.left * source.batch_size + end.rows


def row(i: int) -> tuple[np.int64, str, Any]:
    return np.int64(i), f"row {i}", np.full((2, 3), i, np.float32)


@settings(max_examples=examples(80))
@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 3))
def test_batches_equal_the_flows_batches(n: int, size: int, together: int) -> None:
    flow = fl.from_range(n).map(row)
    with BatchQueueInput(flow, size, capacity=30) as source:
        got, left = batches(source, together)
        assert source.size() == n // size
    whole = n // (size * together) * together
    expected = flow.batch(size, drop_remainder=True).collect()[:whole]
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one[0], other[0], strict=True)
        assert [text.decode() for text in one[1]] == other[1]
        np.testing.assert_array_equal(one[2], other[2], strict=True)
    assert left == n - whole * size


@settings(max_examples=examples(80))
@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 3))
def test_the_last_batch_may_be_smaller(n: int, size: int, together: int) -> None:
    flow = fl.from_range(n).map(row)
    with BatchQueueInput(flow, size, capacity=30, remainder="smaller") as source:
        assert source.specs[0].shape.as_list() == [None]
        assert source.size() == -(-n // size)
        got, left = batches(source, together)
    expected = flow.batch(size).collect()
    assert len(got) == len(expected) // together * together
    for one, other in zip(got, expected, strict=False):
        np.testing.assert_array_equal(one[0], other[0], strict=True)
        np.testing.assert_array_equal(one[2], other[2], strict=True)
    assert left == (len(expected) - len(got)) * size


def test_user_queue_leaves_out_the_remainder() -> None:
    queue = tf.queue.FIFOQueue(9, [tf.int64], [()])
    with pytest.raises(fl.InvalidFlow, match=r"remainder='smaller' needs a queue that ends"):
        BatchQueueInput(fl.from_range(5), 2, queue, remainder="smaller", capacity=9)
    wrong: Any = "keep"
    with pytest.raises(fl.InvalidFlow, match=r"remainder must be 'drop' or 'smaller', got 'keep'"):
        BatchQueueInput(fl.from_range(5), 2, remainder=wrong)


def test_rows_of_other_sizes_are_padded() -> None:
    flow = fl.from_range(5).map(lambda i: np.full(i, i, np.int64))
    spec = [tf.TensorSpec((None,), tf.int64)]
    with BatchQueueInput(flow, 2, spec=spec) as source:
        assert source.specs[0].shape.as_list() == [2, None]
        got, left = batches(source)
    assert [one.tolist() for (one,) in got] == [[[0], [1]], [[2, 2, 0], [3, 3, 3]]]
    assert left == 1


def test_invalid_batch_arguments_are_refused() -> None:
    rows = fl.from_range(5).map(row)
    with pytest.raises(fl.InvalidFlow, match="BatchQueueInput: batch_size must be an int >= 1"):
        BatchQueueInput(rows, 0)
    with pytest.raises(fl.InvalidFlow, match=r"BatchQueueInput: batch_size must be .*20"):
        BatchQueueInput(rows, 20, capacity=10)
    unknown = [tf.TensorSpec(None, tf.int64)]
    with pytest.raises(fl.SpecMismatch, match="'element' has an unknown rank"):
        BatchQueueInput(fl.from_iterable([np.int64(1)]), 2, spec=unknown)


def test_a_state_counts_rows() -> None:
    flow = fl.from_range(12).map(row)
    with BatchQueueInput(flow, 4) as source:
        source.reset()
        source.tensors(*source.next_args())
        state = source.state_dict()
    with BatchQueueInput(flow, 4) as source:
        source.restore(state)
        assert source.tensors(*source.next_args())[0].numpy().tolist() == [4, 5, 6, 7]

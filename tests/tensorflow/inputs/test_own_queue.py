"""A queue passed by the user: checked, emptied, and left open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import EndOfPass, QueueInput
from tests.waiting import eventually


def pairs(n: int) -> fl.Flow[Any]:
    return fl.from_range(n).map(lambda i: {"n": np.int64(i), "x": np.full(3, i, np.float32)})


def numbers(source: QueueInput) -> list[int]:
    got: list[int] = []
    try:
        while True:
            got.append(int(source.tensors(*source.next_args())[0]))
    except EndOfPass:
        return got


DTYPES, SHAPES = [tf.int64, tf.float32], [(), (3,)]


@pytest.mark.parametrize(
    "queue",
    [
        lambda: tf.queue.FIFOQueue(3, DTYPES, SHAPES),
        lambda: tf.queue.FIFOQueue(60, DTYPES),
        lambda: tf.queue.FIFOQueue(60, DTYPES, SHAPES, names=["n", "x"]),
        lambda: tf.queue.PaddingFIFOQueue(60, DTYPES, [(), (None,)]),
    ],
)
def test_user_queue_serves_several_passes(queue: Any) -> None:
    own = queue()
    with QueueInput(pairs(20), own) as source:
        for taken in (20, 4, 20):
            source.reset()
            assert source.queue is own
            if taken == 20:
                assert numbers(source) == list(range(20))
            else:
                assert [int(source.tensors(*source.next_args())[0]) for _ in range(4)] == [
                    0,
                    1,
                    2,
                    3,
                ]
    assert not bool(own.is_closed())


def test_closing_ends_a_waiting_thread() -> None:
    own = tf.queue.FIFOQueue(2, DTYPES, SHAPES)
    source = QueueInput(pairs(100), own)
    source.reset()
    assert eventually(lambda: int(own.size()) == 2)
    source.close()
    assert not bool(own.is_closed())


def test_shuffling_queue_releases_its_last_elements() -> None:
    own = tf.queue.RandomShuffleQueue(60, 10, DTYPES, SHAPES, seed=3)
    with QueueInput(pairs(40), own) as source:
        source.reset()
        got = numbers(source)
        assert sorted(got) == list(range(40)) != got
        with pytest.raises(fl.FlowError, match=r"RandomShuffleQueue serves one pass.*\.repeat\(\)"):
            source.reset()


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        (lambda: tf.queue.FIFOQueue(9, [tf.int64]), r"holds \(int64\[\.\.\.\]\), but an element"),
        (lambda: tf.queue.FIFOQueue(9, DTYPES, [(), (4,)]), r"float32\[4\]\), .* float32\[3\]\)"),
        (lambda: tf.queue.FIFOQueue(9, DTYPES[::-1]), r"holds \(float32.*element is \(int64\[\]"),
        (lambda: tf.queue.FIFOQueue(9, DTYPES, SHAPES, names=["x", "n"]), "named x, n"),
    ],
)
def test_a_queue_of_other_types_is_refused_with_both_sides(queue: Any, message: str) -> None:
    with pytest.raises(fl.SpecMismatch, match=f"QueueInput: the queue .*{message}|{message}"):
        QueueInput(pairs(3), queue())


def test_non_queue_is_refused() -> None:
    with pytest.raises(fl.InvalidFlow, match=r"queue must be a tf\.queue, .*got int"):
        QueueInput(pairs(3), 50)  # type: ignore[arg-type]  # what is tested

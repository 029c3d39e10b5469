"""AlignedCopies: copies equal the array, and memory is reused only when no longer read."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput
from flowdsl.tensorflow.inputs.aligned import AlignedCopies
from flowdsl.workers.slabs import ALIGNMENT
from tests.sampling import examples

MIB = 1 << 20


def address(array: np.ndarray[Any, Any]) -> int:
    start: int = array.__array_interface__["data"][0]
    return start


def unaligned(nbytes: int, value: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    memory = np.full(nbytes + 2 * ALIGNMENT, value, np.uint8)
    start = -address(memory) % ALIGNMENT + 16
    return memory[start : start + nbytes]


def test_small_or_aligned_array_is_not_copied() -> None:
    copies = AlignedCopies()
    small, large = unaligned(1000, 1), AlignedCopies().of(unaligned(2 * MIB, 1))
    assert copies.of(small) is small
    assert copies.of(large) is large
    texts = np.full(MIB, "a", object)[1:]
    assert copies.of(texts) is texts


@pytest.mark.parametrize("transposed", [False, True])
def test_copy_equals_the_array(transposed: bool) -> None:
    array = unaligned(8 * MIB, 0).view(np.float64).reshape(1024, 512, 2)
    array[:] = np.random.default_rng(0).random(array.shape)
    array = array.T if transposed else array
    copy = AlignedCopies().of(array)
    assert copy is not array
    assert address(copy) % ALIGNMENT == 0
    np.testing.assert_array_equal(copy, array, strict=True)


def test_memory_is_reused_once_it_is_free() -> None:
    copies = AlignedCopies()
    first = copies.of(unaligned(MIB, 1))
    second = copies.of(unaligned(MIB, 2))
    assert address(first) != address(second)
    assert (first == 1).all()
    where = address(first)
    del first
    gc.collect()
    assert address(copies.of(unaligned(MIB, 3))) == where
    assert (second == 2).all()


@settings(max_examples=examples(100))
@given(held=st.integers(0, 12), ahead=st.integers(1, 8), size=st.integers(MIB, 3 * MIB))
def test_arrays_held_by_a_step_are_never_overwritten(held: int, ahead: int, size: int) -> None:
    flow = fl.from_range(30).map(lambda i: unaligned(size, i))
    with QueueInput(flow, capacity=ahead, spec=[tf.TensorSpec((size,), tf.uint8)]) as source:
        source.reset()
        kept: list[tf.Tensor] = []
        for i in range(30):
            kept.append(source.tensors(*source.next_args())[0])
            kept = kept[-held - 1 :]
            for k, tensor in enumerate(reversed(kept)):
                values = np.frombuffer(memoryview(tensor), np.uint8)  # type: ignore[arg-type]
                assert values[0] == values[-1] == values[size // 2] == i - k

"""A flow for the replicas of a strategy: each row once, and all input workers end together."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import LeftOver, distributed_dataset
from flowdsl.tensorflow.inputs.dataset_input import _part


def mirrored() -> tf.distribute.Strategy:
    on_cpu = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=on_cpu)


def steps(flow: Any, strategy: tf.distribute.Strategy) -> list[list[Any]]:
    """Return the elements of the replicas in each step of a pass."""
    return [
        [one.numpy().tolist() for one in strategy.experimental_local_results(element)]
        for element in distributed_dataset(flow, strategy)
    ]


def test_each_replica_takes_an_element_of_its_own() -> None:
    strategy = mirrored()
    flow = fl.from_range(8).shuffle(seed=2)
    dataset = distributed_dataset(flow.batch(2), strategy)
    for epoch in range(2):
        got = [
            [one.numpy().tolist() for one in strategy.experimental_local_results(element)]
            for element in dataset
        ]
        batches = [batch.tolist() for batch in flow.batch(2).epoch(epoch)]
        assert got == [batches[:2], batches[2:]]


def test_elements_too_few_for_a_step_are_left_out_with_a_warning() -> None:
    with pytest.warns(LeftOver, match="the last 1 element.*2 replicas"):
        assert steps(fl.from_range(5), mirrored()) == [[0, 1], [2, 3]]


@given(n=st.integers(1, 60), workers=st.integers(1, 4), replicas=st.integers(1, 3))
def test_input_workers_share_a_pass_and_end_together(n: int, workers: int, replicas: int) -> None:
    towers = workers * replicas
    parts = [
        _part(fl.from_range(n), tf.distribute.InputContext(workers, k, towers)).collect()
        for k in range(workers)
    ]
    assert {len(part) for part in parts} == {n // towers * replicas}
    assert sorted(i for part in parts for i in part) == [*range(n - n % towers)]


def test_flow_of_unknown_length_is_refused_for_shards() -> None:
    with pytest.raises(fl.InvalidFlow, match=r"known length or be endless, .*fixed_size\(n\)"):
        distributed_dataset(fl.from_range(5).filter(bool), mirrored())
    with pytest.raises(fl.InvalidFlow, match=r"takes 2 element\(s\), .* has 1"):
        distributed_dataset(fl.from_range(1), mirrored())
    with pytest.raises(fl.InvalidFlow, match="flow must be a Flow, got list"):
        distributed_dataset([1, 2], mirrored())  # type: ignore[arg-type]  # that is the mistake


def test_endless_flow_runs_any_number_of_steps() -> None:
    strategy = mirrored()
    elements = iter(distributed_dataset(fl.from_range(3).repeat(), strategy))
    got = [strategy.experimental_local_results(next(elements)) for _ in range(3)]
    assert [[int(one.numpy()) for one in pair] for pair in got] == [[0, 1], [2, 0], [1, 2]]

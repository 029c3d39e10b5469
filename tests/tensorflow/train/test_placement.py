"""Placement of variables: on the least loaded device, shared by towers, or one for each."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.train import LeastLoadedDeviceSetter, MultiGPUTrainerBase

build = MultiGPUTrainerBase.build_on_multi_tower


def least_possible(sizes: list[int], devices: int) -> int:
    """The smallest load of the most loaded device, over all ways to place the variables."""
    return min(
        max(sum(s for s, d in zip(sizes, chosen, strict=True) if d == k) for k in range(devices))
        for chosen in product(range(devices), repeat=len(sizes))
    )


@given(st.lists(st.integers(0, 1000), max_size=7), st.integers(1, 3))
def test_variables_are_balanced_over_devices(sizes: list[int], devices: int) -> None:
    names = [f"/gpu:{k}" for k in range(devices)]
    setter, again = (LeastLoadedDeviceSetter("/cpu:0", names) for _ in range(2))
    placed = [setter.place(size) for size in sizes]
    assert placed == [again.place(size) for size in sizes]
    loads = {n: sum(s for s, p in zip(sizes, placed, strict=True) if p == n) for n in names}
    assert setter.loads == loads
    # Graham's bound for each in turn onto the least loaded (1966).
    assert max(loads.values()) <= (2 - 1 / devices) * least_possible(sizes, devices) + 1e-9


def test_the_variables_of_a_real_model_are_balanced_by_bytes() -> None:
    devices = ["/cpu:0", "/cpu:1", "/cpu:2"]
    setter = LeastLoadedDeviceSetter("/cpu:0", devices)
    with setter.scope():
        net = tf.keras.Sequential(
            [
                tf.keras.Input((16, 16, 3)),
                tf.keras.layers.Conv2D(16, 3),
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Conv2D(24, 3),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(5),
            ]
        )
    held = dict.fromkeys(devices, 0)
    for variable in net.variables:
        value: Any = variable
        device = value.value.device
        held[f"/{device.split(':', 4)[-1].lower().removeprefix('device:')}"[-6:]] += (
            value.numpy().nbytes
        )
    sizes = [variable.numpy().nbytes for variable in net.variables]
    assert sum(held.values()) == sum(sizes)
    most = max(held.values())
    assert most <= (2 - 1 / 3) * max(max(sizes), sum(sizes) / 3)


@pytest.mark.parametrize("devices", [[], ["/cpu:0", "/cpu:0"], "/cpu:0"])
def test_devices_for_variables_are_a_list_of_different_ones(devices: Any) -> None:
    with pytest.raises(fl.InvalidFlow, match="ps_devices must be a list of"):
        LeastLoadedDeviceSetter("/cpu:0", devices)


CPUS = ["/cpu:0", "/cpu:1"]


def layer() -> tf.keras.layers.Layer:
    made = tf.keras.layers.Dense(2)
    made(tf.zeros((1, 3)))
    return made


def test_shared_variables_come_from_the_first_tower() -> None:
    first, second = build([0, 1], layer, CPUS)
    first.trainable_variables[0].assign(tf.ones((3, 2)))
    assert float(tf.reduce_sum(second.trainable_variables[0])) == 6
    assert first(tf.ones((1, 3))).numpy().tolist() == second(tf.ones((1, 3))).numpy().tolist()


def test_replicated_variables_are_on_their_towers() -> None:
    own = build([0, 1], lambda: tf.Variable(0.0, name="w"), CPUS, "replicated", ["a", "b"])
    assert [variable.name for variable in own] == ["a/w:0", "b/w:0"]
    assert [variable.device[-5:] for variable in own] == ["CPU:0", "CPU:1"]
    own[0].assign(1.0)
    assert float(own[1]) == 0


def test_mismatch_is_named() -> None:
    sizes = iter([1, 2, 1, 1])

    def other() -> tf.Variable:
        return tf.Variable(tf.zeros([next(sizes)]))

    counts = iter([1, 2, 2, 1])

    def more() -> list[tf.Variable]:
        return [tf.Variable(0.0) for _ in range(next(counts))]

    with pytest.raises(fl.InvalidFlow, match=r"variable 1 of func has shape \[2\].*it had \[1\]"):
        build([0, 1], other, CPUS)
    with pytest.raises(fl.InvalidFlow, match="makes more variables than the 1"):
        build([0, 1], more, CPUS)
    with pytest.raises(fl.InvalidFlow, match="on tower 1 func made 1 variables, on the first 2"):
        build([0, 1], more, CPUS)
    anything: Any = build
    with pytest.raises(fl.InvalidFlow, match="vs_names is for var_strategy='replicated'"):
        anything([0, 1], other, CPUS, "shared", ["a", "b"])
    with pytest.raises(fl.InvalidFlow, match="must be 'shared' or 'replicated', got 'mirrored'"):
        anything([0, 1], other, CPUS, "mirrored")
    with pytest.raises(fl.InvalidFlow, match="as many devices and names, got 2, 1 and 2"):
        anything([0, 1], other, ["/cpu:0"])

"""Int arguments accept ints, including NumPy's, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput, logical_cpus, towers
from tests.integers import NO_INTS

FLOW = fl.from_range(9).map(np.int64)


def refused(what: str, least: int, value: object) -> Any:
    return pytest.raises(
        fl.InvalidFlow, match=re.escape(f"{what} must be an int >= {least}, got {value!r}") + "$"
    )


@pytest.mark.parametrize("value", [*NO_INTS, None, 0])
def test_capacity_must_be_an_int(value: Any) -> None:
    with refused("QueueInput: capacity", 1, value):
        QueueInput(FLOW, capacity=value)


def test_a_capacity_that_tensorflow_cannot_count() -> None:
    with pytest.raises(fl.InvalidFlow, match=r"capacity must be an int >= 1 and below 2\*\*31"):
        QueueInput(FLOW, capacity=2**31)


@pytest.mark.parametrize("value", [*NO_INTS, None, 0])
def test_elements_argument_must_be_an_int(value: Any) -> None:
    with QueueInput(FLOW) as source:
        source.reset()
        with refused("QueueInput: elements", 1, value):
            source.next_args(value)
        assert source.state_dict() == {"epoch": 0, "run": FLOW.epoch(0).state_dict()}


@pytest.mark.parametrize("value", [*NO_INTS, None, -1])
def test_epoch_argument_must_be_an_int(value: Any) -> None:
    with QueueInput(FLOW) as source:
        source.reset(3)
        with refused("QueueInput: epoch", 0, value):
            source.reset(value)
        assert source.epoch == 3
        source.next_args()  # the pass that was under way goes on


@pytest.mark.parametrize("value", [*NO_INTS, None, -1])
@pytest.mark.parametrize("run", [None, FLOW.epoch(1).state_dict()])
def test_epoch_of_a_state_must_be_an_int(value: Any, run: object) -> None:
    with (
        QueueInput(FLOW) as source,
        pytest.raises(
            fl.StateMismatch, match=r"QueueInput: state must be what state_dict\(\) returned"
        ),
    ):
        source.restore({"epoch": value, "run": run})


@pytest.mark.parametrize("value", [*NO_INTS, None, 0, -1])
def test_number_of_devices_must_be_an_int(value: Any) -> None:
    with refused("logical_cpus: n", 1, value):
        logical_cpus(value)
    with refused("towers: n", 1, value):
        towers(value)


def test_numpy_ints_are_accepted() -> None:
    two: Any = np.int16(2)
    assert logical_cpus(two) == ("/cpu:0", "/cpu:1")
    assert len(towers(two)) == 2
    with QueueInput(FLOW, capacity=two) as source:
        source.reset(two)
        source.next_args(two)
        state = source.state_dict()
        assert [type(number) for number in (source.capacity, source.epoch)] == [int, int]
        source.restore(state)
        assert source.state_dict() == state

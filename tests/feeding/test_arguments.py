"""Arguments of a pump: numbers must be ints, and errors name them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.feeding.pump import Pump
from tests.feeding.buffered import Queued
from tests.feeding.watched import Pumped


@pytest.mark.parametrize(
    "wrong", [0, -1, 1.0, 1.5, True, "3", None, np.float64(3), np.bool_(True), 2**62]
)
def test_arguments_that_are_not_numbers_are_named(wrong: Any) -> None:
    run = iter(fl.from_range(3))
    with pytest.raises(
        fl.InvalidFlow, match=r"Feed: capacity must be an int >= 1.*, got "
    ) as caught:
        Pump(run, Queued[int](), wrong, name="Feed")
    assert str(caught.value).endswith(f"got {wrong!r}")
    with Pumped(fl.from_range(3), 2) as pumped, pytest.raises(fl.InvalidFlow) as caught:
        pumped.pump.take(wrong)
    assert str(caught.value).startswith("Pump: n must be an int >= 1")


def test_numbers_of_numpy_are_ints() -> None:
    pump = Pump(iter(fl.from_range(3)), Queued[int](), np.int8(3))  # type: ignore[arg-type]  # its own int
    pump.take(np.uint64(3))  # type: ignore[arg-type]  # likewise
    assert pump.state_dict()["position"] == 3
    pump.stop()


def test_a_step_larger_than_the_capacity_is_refused() -> None:
    with (
        Pumped(fl.from_range(9), 2) as pumped,
        pytest.raises(fl.InvalidFlow, match="capacity=2 is too small for a step of 3"),
    ):
        pumped.pump.take(3)

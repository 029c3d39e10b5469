"""measure: counts, times and invalid arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import FlowError, InvalidFlow, Speed


class Clock:
    """A clock that advances only while an element is made."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_measure_counts_elements_and_bytes() -> None:
    rows = fl.from_items([(np.zeros(3, np.float32), np.int64(1), "ab", b"c", 7)]).repeat()
    speed = rows.measure(size=600)
    assert (speed.elements, speed.nbytes) == (600, 600 * (12 + 8 + 2 + 1))
    lists = fl.from_items([[np.zeros(2), np.zeros(3)]])
    assert lists.measure().nbytes == 40


def test_measure_times_elements_after_the_warmup(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("flowdsl.statistics.speed.time", clock)

    def wait(i: int) -> int:
        clock.now += 100.0 if i < 3 else 0.25
        return i

    speed = fl.from_range(50).map(wait).measure(size=10, warmup=3)
    assert (speed.elements, speed.seconds, speed.rate) == (10, 2.5, 4.0)


def test_measure_ends_with_the_pass() -> None:
    assert fl.from_range(7).measure().elements == 7
    assert fl.from_range(7).filter(lambda i: i > 3).measure(size=100).elements == 3
    assert fl.from_range(7).measure(warmup=5).elements == 2


def test_measure_ends_the_workers() -> None:
    flow = fl.from_range(1000).map(lambda i: i).prefetch(procs=1)
    assert flow.measure(size=5).elements == 5


def test_nothing_to_time_is_an_error() -> None:
    with pytest.raises(FlowError) as caught:
        fl.from_range(4).measure(warmup=6)
    assert str(caught.value) == (
        "measure: the pass ended after 4 elements, with a warmup of 6; there is nothing to time. "
        "Measure flow.repeat(), or use a smaller warmup"
    )


@pytest.mark.parametrize("warmup", [0, 6])
def test_an_empty_flow_cannot_be_repeated_and_is_called_empty(warmup: int) -> None:
    with pytest.raises(FlowError) as caught:
        fl.from_range(4).filter(lambda i: False).measure(warmup=warmup)
    assert str(caught.value) == "measure: the flow has no elements, so there is nothing to time"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "measure: size must be an int >= 1, got 0"),
        ({"size": 2.5}, "measure: size must be an int >= 1, got 2.5"),
        ({"warmup": -1}, "measure: warmup must be an int >= 0, got -1"),
    ],
)
def test_measure_refuses_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(4).measure(**arguments)
    assert str(caught.value) == message


def test_an_error_of_the_flow_is_raised() -> None:
    with pytest.raises(fl.ElementError):
        fl.from_range(4).map(lambda i: 1 // (i - 2)).measure()


def test_speed_is_printed_with_units() -> None:
    speed = Speed(5000, 2.0, 30_000_000)
    assert (speed.rate, speed.bandwidth) == (2500.0, 15e6)
    assert str(speed) == "2,500 elements/s, 15.0 MB/s (5,000 in 2 s)"

"""prefetch: to the elements it is the identity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import InvalidFlow


def draw(_: int, rng: np.random.Generator) -> float:
    return float(rng.random())


@pytest.mark.parametrize("procs", [0, 1, 3])
def test_changes_nothing_of_what_is_given(procs: int) -> None:
    flow = fl.from_range(50).shuffle().random_map(draw).repeat(2)
    ahead = flow.prefetch(procs=procs)
    assert ahead.collect() == flow.collect()
    assert list(ahead.epoch(2)) == list(flow.epoch(2))
    assert len(ahead) == len(flow)
    assert ahead.effects == flow.effects
    assert ahead.spec == flow.spec
    assert list(ahead.node.rows(0)) == list(flow.node.rows(0))
    assert ahead.node.origin(0, 3) == flow.node.origin(0, 3)


def test_changes_no_draw_above_it() -> None:
    flow = fl.from_range(50)
    assert flow.prefetch().random_map(draw).collect() == flow.random_map(draw).collect()
    assert flow.prefetch().shuffle().collect() == flow.shuffle().collect()
    assert flow.prefetch().shuffle(9).collect() == flow.shuffle(9).collect()


def test_of_an_endless_flow() -> None:
    run = iter(fl.from_range(3).repeat().prefetch(procs=1))
    with run:
        assert [next(run) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("procs", [-1, 1.5, True, None])
def test_refuses(procs: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).prefetch(procs=procs)
    assert str(caught.value) == f"prefetch: procs must be an int >= 0, got {procs!r}"


def test_refuses_what_no_machine_can_start() -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).prefetch(procs=10**9)
    assert str(caught.value) == "prefetch: procs must be at most 1024, got 1000000000"
    fl.from_range(3).prefetch(procs=1024)

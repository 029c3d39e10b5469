"""Shards of a flow for several workers: at every step, they form its beginning."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import EndOfPass
from flowdsl.tensorflow.inputs.sharded_input import ShardedInput
from flowdsl.tensorflow.inputs.source import State
from tests.sampling import examples


def step(sources: list[ShardedInput], each: int) -> list[int]:
    """Return the elements that all workers take in a step, in the order of the flow."""
    taken = []
    for source in sources:
        args = source.next_args(each)
        taken.append([int(source.tensors(*args)[0]) for _ in range(each)])
    return [element for elements in zip(*taken, strict=True) for element in elements]


def begun(flow: fl.Flow[Any, Any], n: int, epoch: int) -> list[ShardedInput]:
    sources = [ShardedInput(flow, n, i) for i in range(n)]
    for source in sources:
        source.reset(epoch)
    return sources


@settings(max_examples=examples(80), deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 5)
)
def test_state_resumes_with_another_number_of_workers(
    rows: int, n: int, later: int, each: int, steps: int
) -> None:
    flow = fl.from_range(rows).shuffle(seed=2)
    expected = list(flow.epoch(1))
    taken: list[int] = []
    sources = begun(flow, n, 1)
    states: set[str] = set()
    state: State = {}
    try:
        for _ in range(steps):
            taken += step(sources, each)
    except EndOfPass:
        pass  # of the first worker, and so of all
    for source in sources:
        states.add(repr(state := source.state_dict()))
        source.close()
    assert len(states) == 1
    assert taken == expected[: len(taken)]

    others = [ShardedInput(flow, later, i) for i in range(later)]
    for other in others:
        other.restore(state)
    ends: set[int] = set()
    while not ends:
        try:
            taken += step(others, each)
        except EndOfPass:
            for other in others:
                with pytest.raises(EndOfPass) as end:
                    other.next_args(each)
                ends.add(end.value.left)
    (left,) = ends
    assert left < each
    assert taken == expected[: len(taken)]
    assert len(expected) - len(taken) < later * each
    for other in others:
        other.reset(2)
    again = list(flow.epoch(2))
    if rows >= later * each:
        assert step(others, each) == again[: later * each]
    for other in others:
        other.close()


def test_a_flow_of_unknown_length_is_refused() -> None:
    with pytest.raises(fl.InvalidFlow, match="all processes end a pass together"):
        ShardedInput(fl.from_range(9).filter(lambda i: i > 3), 2, 0)
    endless = ShardedInput(fl.from_range(3).repeat(), 2, 1)
    with endless:
        endless.reset()
        assert step([endless], 3) == [1, 0, 2]


@pytest.mark.parametrize("state", [{}, {"epoch": 0}, {"epoch": 0, "taken": 99}])
def test_invalid_state_is_refused(state: State) -> None:
    with pytest.raises(fl.StateMismatch, match="ShardedInput: "):
        ShardedInput(fl.from_range(9), 2, 0).restore(state)


@pytest.mark.parametrize("i", [-1, 2, True])
def test_invalid_worker_number_is_refused(i: int) -> None:
    with pytest.raises(fl.InvalidFlow, match="i must be an int from 0 to 1"):
        ShardedInput(fl.from_range(9), 2, i)


def test_a_flow_that_is_divided_already_is_not_divided_again() -> None:
    flow = fl.from_range(12).shard(2, 1).batch(2)
    with pytest.raises(fl.InvalidFlow, match=r"contains shard\(2, 1\), and ShardedInput div"):
        ShardedInput(flow, 2, 1)
    assert ShardedInput(flow, 2, 0).size() == 1  # of another process: the program's own choice

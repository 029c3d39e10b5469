"""Loops over epochs, and resuming them from a state."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless
from flowdsl.errors import FlowError, InvalidFlow, StateMismatch
from flowdsl.nodes import OneShot
from flowdsl.plan.reference import interpret
from flowdsl.plan.tree import walk
from flowdsl.testing.catalogue import MAX_ROWS
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import element_difference
from flowdsl.testing.recipes import MAX_ELEMENTS, Recipe
from flowdsl.workers.processes import Processes
from tests.sampling import examples
from tests.strategies import chains
from tests.threads import spawn_thread

FLOW = fl.from_range(10).shuffle(seed=3).batch(4)


def loop(flow: fl.Flow[Any, Any], n: int, state: Any = None) -> Iterator[tuple[int, Any]]:
    for run in flow.epochs(n, resume=state):
        with run:
            for x in run:
                yield run.epoch, x


@settings(max_examples=examples(150))
@given(
    chains(most=5, prefetched=True),
    st.integers(0, 2),
    st.sampled_from([(0, 0), (0, 2), (2, 0), (2, 2)]),
    st.integers(0, 2),
    st.integers(0, 2 * MAX_ROWS),
)
def _goes_on(recipe: Recipe, more: int, procs: tuple[int, int], epoch: int, position: int) -> None:
    before, after = procs
    n = epoch + 1 + more
    flow = recipe.build(before)
    if recipe.is_unordered or any(isinstance(part, OneShot) for part in walk(flow.node)):
        return
    if Endless in flow.effects:
        return
    try:
        whole = list(islice(loop(flow, n), 8 * MAX_ELEMENTS))
    except FlowError:
        return
    if len(whole) >= 4 * MAX_ELEMENTS:
        return
    position = min(position, sum(k == epoch for k, _ in whole))
    with flow.epoch(epoch) as run:
        delivered = [(epoch, x) for x in islice(run, position)]
        state = run.state_dict()
    delivered = [(k, x) for k, x in whole if k < epoch] + delivered
    rest = list(loop(recipe.build(after), n, state))
    assert [k for k, _ in [*delivered, *rest]] == [k for k, _ in whole]
    assert same([x for _, x in [*delivered, *rest]], [x for _, x in whole])


def test_epochs_loop_resumes_from_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))
    _goes_on()


def test_epochs_resume_with_worker_processes() -> None:
    run = FLOW.epoch(1)
    next(run)
    rest = loop(FLOW.prefetch(procs=2), 3, run.state_dict())
    expected = [(k, x.tolist()) for k, x in loop(FLOW, 3)][4:]
    assert [(k, x.tolist()) for k, x in rest] == expected


def test_resuming_at_the_end_of_an_epoch_begins_the_next() -> None:
    run = FLOW.epoch(1)
    assert len(list(run)) == 3
    runs = list(FLOW.epochs(3, resume=run.state_dict()))
    assert [(run.epoch, len(list(run))) for run in runs] == [(1, 0), (2, 3)]
    last = FLOW.epoch(2)
    list(last)
    assert [list(run) for run in FLOW.epochs(3, resume=last.state_dict())] == [[]]


def test_resuming_at_the_beginning_yields_the_whole_epoch() -> None:
    state = FLOW.epoch(1).state_dict()
    assert [(run.epoch, len(list(run))) for run in FLOW.epochs(2, resume=state)] == [(1, 3)]


def test_epochs_without_a_state_begin_at_zero() -> None:
    assert [run.epoch for run in FLOW.epochs(2, resume=None)] == [0, 1]


def test_a_state_beyond_the_last_epoch_is_refused() -> None:
    state = FLOW.epoch(3).state_dict()
    with pytest.raises(InvalidFlow) as caught:
        FLOW.epochs(3, resume=state)
    assert str(caught.value) == (
        "epochs: the state is in epoch 3, so n must be at least 4, got 3; n counts the finished "
        "epochs too"
    )


def test_a_state_of_another_flow_is_refused_immediately() -> None:
    state = iter(FLOW).state_dict()
    with pytest.raises(StateMismatch, match="operator 3 is batch"):
        fl.from_range(10).shuffle(seed=3).batch(5).epochs(3, resume=state)
    with pytest.raises(StateMismatch, match="state must be what"):
        FLOW.epochs(3, resume={})


class TestASecondLoopOverTheSameEpoch:
    def test_warns_once_with_the_line_to_write(self) -> None:
        flow = fl.from_range(5).shuffle(seed=1).map(abs)
        list(flow)
        with pytest.warns(fl.SameEpoch, match=r"for run in flow\.epochs\(n\)") as warned:
            assert [list(flow) for _ in range(3)] == 3 * [flow.collect()]
        assert len(warned) == 1

    @pytest.mark.parametrize(
        "flow",
        [
            fl.from_range(5).map(abs),
            fl.from_range(5).shuffle(seed=1).cache(),
            fl.from_range(5).concat(fl.from_range(3)).window(2),
        ],
        ids=str,
    )
    def test_does_not_warn_where_epochs_are_alike(self, flow: fl.Flow[Any, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [list(flow), list(flow)] == 2 * [list(flow.epoch(1))]

    def test_does_not_warn_of_other_passes(self) -> None:
        flow = fl.from_range(5).shuffle(seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            next(iter(flow))
            flow.collect()
            flow.size()
            for run in flow.epochs(2):
                list(run)
            list(flow.epoch(0))
            list(flow)  # the first loop that ends


@given(chains(most=4))
def test_epochs_are_alike_unless_a_node_says_otherwise(recipe: Recipe) -> None:
    node = recipe.flow.node
    if node.varies_by_epoch or Endless in node.effects or not node.replayable:
        return
    first, third = (_outcome(recipe.flow, epoch) for epoch in (0, 2))
    assert element_difference(first, third) is None


def _outcome(flow: fl.Flow[Any, Any], epoch: int) -> list[Any]:
    try:
        return list(islice(interpret(flow.node, epoch), MAX_ELEMENTS))
    except FlowError:  # the same in each epoch, or of none
        return []

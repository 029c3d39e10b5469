from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow.inputs import EndOfPass, QueueInput
from tests.waiting import soonest

Step = Callable[..., list[tf.Tensor]]


class Pair(NamedTuple):
    x: NDArray[np.float32]
    y: np.int64


def pairs(n: int) -> fl.Flow[Pair, fl.Exact]:
    return fl.from_range(n).map(pair)


def pair(i: int) -> Pair:
    return Pair(np.full((3,), i, np.float32), np.int64(i))


def step_of(source: QueueInput) -> Step:
    @tf.function(input_signature=source.signature)
    def step(*args: tf.Tensor) -> list[tf.Tensor]:
        return source.tensors(*args)

    return step


def drain(source: QueueInput, step: Step) -> list[int]:
    """Return the label of every element until the end of the pass."""
    labels: list[int] = []
    try:
        while True:
            labels.append(int(step(*source.next_args())[1]))
    except EndOfPass:
        return labels


@pytest.mark.parametrize("n", [0, 1, 5, 120])
@pytest.mark.parametrize("capacity", [1, 50])
def test_pass_yields_every_element_in_order_and_ends(n: int, capacity: int) -> None:
    spec = [tf.TensorSpec((3,), tf.float32), tf.TensorSpec((), tf.int64)]
    with QueueInput(pairs(n), capacity=capacity, spec=spec) as source:
        source.reset()
        assert drain(source, step_of(source)) == list(range(n))


def test_every_component_arrives_unchanged() -> None:
    flow = pairs(5).batch(2)
    with QueueInput(flow) as source:
        source.reset()
        step = step_of(source)
        for x, y in flow.collect():
            got_x, got_y = step(*source.next_args())
            np.testing.assert_array_equal(got_x.numpy(), x, strict=True)
            np.testing.assert_array_equal(got_y.numpy(), y, strict=True)


def test_reset_begins_again_without_tracing() -> None:
    with QueueInput(pairs(6)) as source:
        step = tf.function(input_signature=source.signature)(source.tensors)
        for _ in range(3):
            source.reset()
            assert drain(source, step) == list(range(6))
        assert step.experimental_get_tracing_count() == 1


def test_reset_drops_what_was_queued() -> None:
    with QueueInput(pairs(100), capacity=10) as source:
        step = step_of(source)
        source.reset()
        step(*source.next_args(5))
        source.reset()
        assert drain(source, step) == list(range(100))


def test_each_epoch_is_the_epoch_of_the_flow() -> None:
    flow = pairs(20).shuffle(seed=1)
    with QueueInput(flow) as source:
        step = step_of(source)
        for epoch in range(2):
            source.reset(epoch)
            assert drain(source, step) == [int(y) for _, y in flow.epoch(epoch)]
            assert source.epoch == epoch


def test_several_elements_are_taken_together_or_not_at_all() -> None:
    with QueueInput(pairs(5)) as source:
        source.reset()
        source.next_args(2)
        source.next_args(2)
        with pytest.raises(EndOfPass) as end:
            source.next_args(2)
        assert end.value.left == 1
        source.next_args(1)


def test_fill_counts_what_waits() -> None:
    with QueueInput(pairs(7)) as source:
        assert source.fill == 0
        source.reset()
        source.next_args(3)
        with pytest.raises(EndOfPass) as end:  # waits until all seven are queued
            source.next_args(5)
        assert source.fill == end.value.left == 4
        assert int(source.queue.size()) == 7  # no step has run yet


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("procs", [0, 1])
def test_an_error_of_the_flow_is_raised_after_the_elements_before_it(procs: int) -> None:
    def fragile(i: int) -> Pair:
        if i == 4:
            raise ValueError("disk on fire")
        return pair(i)

    with QueueInput(fl.from_range(8).map(fragile).prefetch(procs)) as source:
        source.reset()
        step = step_of(source)
        assert [int(step(*source.next_args())[1]) for _ in range(4)] == [0, 1, 2, 3]
        for _ in range(2):  # it stays an error
            with pytest.raises(fl.ElementError, match="element 4") as failed:
                source.next_args()
            assert isinstance(failed.value.__cause__, ValueError)


def test_error_reports_elements_that_fill_no_step() -> None:
    def fragile(i: int) -> Pair:
        return pair(i) if i < 3 else pair(1 // 0)

    with QueueInput(fl.from_range(8).map(fragile)) as source:
        source.reset()
        source.next_args(2)
        with pytest.raises(fl.ElementError) as failed:
            source.next_args(2)
        assert failed.value.__notes__ == ["1 element(s) before it were not used: a step takes 2"]


def test_quitting_inside_the_flow_is_an_error_too() -> None:
    def elements() -> Iterator[Pair]:
        yield pair(0)
        raise SystemExit(0)

    flow = fl.from_iterable(elements)
    with QueueInput(flow) as source:
        source.reset()
        source.next_args()
        with pytest.raises(fl.FlowError) as failed:
            source.next_args()
        chain = [failed.value, failed.value.__cause__]
        assert any(isinstance(error, SystemExit) for error in chain)


def test_state_ignores_queued_elements() -> None:
    flow = pairs(30).shuffle(seed=3)
    labels = [int(y) for _, y in flow.epoch(2)]
    with QueueInput(flow) as source:
        step = step_of(source)
        source.reset(2)
        taken = [int(step(*source.next_args())[1]) for _ in range(11)]
        state = source.state_dict()
        source.restore(state)
        assert source.epoch == 2
        assert source.state_dict() == state
        assert taken + drain(source, step) == labels


def test_resume_after_a_filter_recomputes_few_elements() -> None:
    made: list[int] = []

    def note(i: int) -> np.int64:
        made.append(i)
        return np.int64(i)

    flow = fl.from_range(1000).map(note).filter(lambda i: i % 2 == 0)
    with QueueInput(flow, capacity=40) as source:
        step = step_of(source)
        source.reset()
        for _ in range(200):
            step(*source.next_args())
        state = source.state_dict()
        made.clear()
        source.restore(state)
        assert int(step(*source.next_args())[0]) == 400
    assert 400 - 2 * 16 <= min(made) <= 400


def test_a_state_is_available_when_the_pass_is_over() -> None:
    with QueueInput(pairs(3)) as source:
        source.reset()
        source.next_args(3)
        with pytest.raises(EndOfPass):
            source.next_args()
        source.restore(source.state_dict())
        with pytest.raises(EndOfPass) as end:
            source.next_args()
        assert end.value.left == 0


def test_pass_without_a_position_restarts(caplog: pytest.LogCaptureFixture) -> None:
    flow = pairs(30).shuffle(seed=3).map(lambda x: x).prefetch(threads=1, ordered=False)
    labels = [int(y) for _, y in flow.epoch(2)]
    with QueueInput(flow) as source:
        step = step_of(source)
        source.reset(2)
        source.next_args(5)
        state, again = source.state_dict(), source.state_dict()
        assert again == state == {"epoch": 2, "run": None}
        assert [record.message[:56] for record in caplog.records] == [
            "training resumed from this state would restart the pass:"
        ]
        source.restore(state)
        assert source.epoch == 2
        assert sorted(drain(source, step)) == sorted(labels)


def test_invalid_state_is_refused() -> None:
    source = QueueInput(pairs(3))
    with pytest.raises(fl.StateMismatch, match="QueueInput"):
        source.restore({"position": 3})


def test_methods_fail_before_a_pass_has_begun() -> None:
    source = QueueInput(pairs(3))
    for use in (source.next_args, source.state_dict, lambda: source.queue):
        with pytest.raises(fl.FlowError, match=r"call reset\(\)"):
            use()


def test_a_step_larger_than_the_queue_is_refused() -> None:
    with QueueInput(pairs(9), capacity=2) as source:
        source.reset()
        with pytest.raises(fl.InvalidFlow, match="capacity=2 is too small for a step of 3"):
            source.next_args(3)


def test_non_flow_is_refused() -> None:
    rows: Any = [1, 2, 3]
    with pytest.raises(fl.InvalidFlow, match="flow must be a Flow, got list"):
        QueueInput(rows)


def test_size_equals_the_flows_length() -> None:
    assert QueueInput(pairs(9).batch(2)).size() == 5
    with pytest.raises(fl.EndlessFlow):
        QueueInput(pairs(9).repeat()).size()


def test_closing_ends_a_waiting_thread() -> None:
    def seconds_to_close() -> float:
        source = QueueInput(pairs(9).repeat(), capacity=2)
        source.reset()
        source.next_args(2)
        began = time.monotonic()
        source.close()
        assert not feeders()
        return time.monotonic() - began

    assert soonest(seconds_to_close, 0.5) < 0.5


def test_closing_does_not_wait_for_a_slow_flow(caplog: pytest.LogCaptureFixture) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def slow(i: int) -> Pair:
        if i:
            busy.set()
            go_on.wait()
        return pair(i)

    source = QueueInput(fl.from_range(3).map(slow))
    source.reset()
    busy.wait()
    source.close()  # it would wait for ever
    assert "the flow is still computing an element" in caplog.text
    (thread,) = feeders()
    go_on.set()
    thread.join()


def feeders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "QueueInput"]

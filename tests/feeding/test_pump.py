"""The laws of a pump on random flows: the elements taken are the elements of the pass."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import cycle, takewhile
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow
from flowdsl.feeding.pump import EndOfPass, Pump
from tests.feeding.buffered import Queued
from tests.feeding.watched import PATIENCE, Positioned, Pumped, in_thread
from tests.states import changed
from tests.waiting import eventually

AnyFlow: TypeAlias = Flow[Any, Any]

FORMS: dict[str, Callable[[int], AnyFlow]] = {
    "by position": lambda n: fl.from_range(n).map(lambda i: i + 1),
    "shuffled": lambda n: fl.from_range(n).shuffle(seed=n),
    "filtered": lambda n: fl.from_range(n).filter(lambda i: i % 3 != 1),
    "batched": lambda n: fl.from_range(n).filter(lambda i: i % 3 != 1).batch(2, collate=list),
    "a stream": lambda n: fl.from_iterable(lambda: iter(range(n))),
    "a window": lambda n: fl.from_iterable(lambda: iter(range(n))).shuffle(buffer=5, seed=n),
    "passes": lambda n: fl.from_range(n + 1).filter(lambda i: i % 3 != 1).repeat().take(2 * n),
}
flows = st.builds(
    lambda form, n: FORMS[form](n), st.sampled_from(sorted(FORMS)), st.integers(0, 60)
)
capacities = st.integers(1, 20)


@st.composite
def steps_of(draw: st.DrawFn, capacity: int) -> list[int]:
    """Draws the numbers of elements of successive steps."""
    return draw(st.lists(st.integers(1, capacity), min_size=1, max_size=5))


@given(st.data(), flows, capacities)
def test_every_element_comes_once_and_in_order(
    data: st.DataObject, flow: AnyFlow, capacity: int
) -> None:
    with Pumped(flow, capacity) as pumped:
        assert pumped.take_all(cycle(data.draw(steps_of(capacity)))) == flow.collect()
        with pytest.raises(EndOfPass) as end:
            pumped.take()
        assert end.value.left == 0


@given(st.data(), flows, capacities)
def test_a_state_after_any_step_resumes_the_exact_rest(
    data: st.DataObject, flow: AnyFlow, capacity: int
) -> None:
    elements, state = flow.collect(), None
    steps, passes = data.draw(steps_of(capacity)), data.draw(st.integers(1, 3))
    taken: list[Any] = []
    for _ in range(passes):  # a resumed pass is resumed again
        with Pumped(flow, capacity, state) as pumped:
            for n in steps:
                if len(taken) + n <= len(elements):
                    taken += pumped.take(n)
                    state = pumped.state()
                    assert list(flow.resume(state)) == elements[len(taken) :]
    with Pumped(flow, capacity, state) as rest:
        assert taken + rest.take_all(cycle([1])) == elements


@given(st.data(), capacities, st.integers(0, 40))
def test_an_error_of_the_flow_is_raised_unchanged_at_its_position(
    data: st.DataObject, capacity: int, fails_at: int
) -> None:
    def elements() -> Iterator[int]:
        yield from range(fails_at)
        raise LookupError("disk on fire")

    steps = data.draw(steps_of(capacity))
    with Pumped(fl.from_iterable(elements), capacity) as pumped:
        for n in takewhile(lambda n: pumped.position + n <= fails_at, cycle(steps)):
            pumped.take(n)
        n = next(n for n in cycle(steps) if pumped.position + n > fails_at)
        left = fails_at - pumped.position
        for _ in range(2):  # it stays an error, and is raised once
            with pytest.raises(fl.FlowError) as failed:
                pumped.take(n)
            assert isinstance(failed.value.__cause__, LookupError)
            notes = getattr(failed.value, "__notes__", [])
            expected_notes = (
                [f"{left} element(s) before it were not used: a step takes {n}"] if left else []
            )
            assert [note for note in notes if "were not used" in note] == expected_notes
        assert list(range(fails_at))[pumped.position :] == (pumped.take(left) if left else [])


@given(st.data(), flows, capacities)
def test_a_pass_is_stopped_at_any_time(data: st.DataObject, flow: AnyFlow, capacity: int) -> None:
    length = len(flow.collect())
    with Pumped(flow, capacity) as pumped:  # which looks for what is left behind
        for n in data.draw(st.lists(st.integers(1, capacity), max_size=5)):
            if pumped.position + n <= length:
                pumped.take(n)
    with pytest.raises(fl.FlowError, match="this pass was stopped"):
        pumped.take()
    assert list(flow.resume(pumped.state())) == flow.collect()[pumped.position :]


@given(st.data(), st.integers(0, 60), capacities)
def test_no_more_elements_are_computed_than_the_capacity(
    data: st.DataObject, length: int, capacity: int
) -> None:
    asked, too_early = [0], list[int]()

    def make(i: int) -> int:
        if i >= asked[0] + capacity:
            too_early.append(i)
        return i

    with Pumped(fl.from_range(length).map(make), capacity) as pumped:
        for n in data.draw(steps_of(capacity)):
            ahead = min(capacity, length - asked[0])
            assert eventually(lambda ahead=ahead: pumped.pump.fill == ahead)  # type: ignore[misc]
            if asked[0] + n <= length:
                asked[0] += n
                pumped.take(n)
    assert too_early == []


@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_a_full_queue_is_not_changed(capacity: int) -> None:
    one_more = threading.Event()

    def make(i: int) -> int:
        if i == capacity:
            one_more.set()
        return i

    with Pumped(fl.from_range(99).map(make), capacity) as pumped:
        assert eventually(lambda: pumped.pump.fill == capacity)
        assert not one_more.wait(0.1)  # nothing tells that it will not happen
        pumped.take()
        assert one_more.wait(PATIENCE)


@given(st.integers(0, 60), capacities, st.data())
def test_two_threads_share_a_pass(length: int, capacity: int, data: st.DataObject) -> None:
    sink = Queued[int]()
    pump = Pump(iter(fl.from_range(length)), sink, capacity)
    steps = [data.draw(st.integers(1, capacity)) for _ in range(2)]
    taken: list[int] = []

    def take(n: int) -> None:
        while True:
            try:
                pump.take(n)
            except EndOfPass:
                return
            taken.extend([sink.queue.get_nowait() for _ in range(n)])

    threads = [in_thread(lambda n=n: take(n)) for n in steps]  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert len(taken) + pump.fill == length
    assert pump.fill < min(steps)
    assert sorted(taken) == list(range(length - pump.fill))
    pump.stop()


class Picky(Positioned[int]):
    """Refuses elements above a number."""

    def __init__(self, most: int, error: BaseException) -> None:
        super().__init__()
        self._most = most
        self._error = error

    def put(self, element: int, position: int) -> None:
        if element > self._most:
            raise self._error
        super().put(element, position)


@pytest.mark.parametrize("error", [ValueError("too large"), StopIteration()])
def test_an_element_that_the_sink_refuses_is_an_error_that_names_it(error: Exception) -> None:
    flow = fl.from_range(30)
    state = changed(flow.epoch(0).state_dict(), position=3)
    with Pumped(flow, 5, state, Picky(9, error)) as pumped:
        assert pumped.take(5) + pumped.take(2) == [3, 4, 5, 6, 7, 8, 9]
        with pytest.raises(type(error)) as refused:
            pumped.take()
        assert refused.value is error
        assert error.__notes__ == ["Pump: raised as element 10 was put into the queue"]
        assert list(flow.resume(pumped.state())) == list(range(10, 30))


def test_a_flow_error_names_the_element_itself() -> None:
    error = fl.SpecMismatch("component 'x' of element 1 is no array")
    with Pumped(fl.from_range(3), 5, None, Picky(0, error)) as pumped:
        pumped.take()
        with pytest.raises(fl.SpecMismatch) as refused:
            pumped.take()
        assert refused.value is error
        assert not hasattr(error, "__notes__")


def test_system_exit_is_not_the_end_of_the_pass() -> None:
    with Pumped(fl.from_range(3), 5, None, Picky(0, SystemExit(0))) as pumped:
        pumped.take()
        with pytest.raises(fl.FlowError, match=r"the pass ended with SystemExit\(0\)") as failed:
            pumped.take()
        assert isinstance(failed.value.__cause__, SystemExit)


def test_a_generator_that_fails_as_it_is_closed_is_an_error_after_the_elements() -> None:
    def elements() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            raise LookupError("no such file")

    with Pumped(fl.from_iterable(elements).take(3), 5) as pumped:
        assert pumped.take(3) == [0, 1, 2]
        with pytest.raises(fl.FlowError, match="failed as it was closed"):
            pumped.take()


class Turns:
    """A flow that computes each element only when it is allowed."""

    def __init__(self) -> None:
        self.begun, self.allowed = threading.Semaphore(0), threading.Semaphore(0)
        self.flow = fl.from_range(9).map(self._make)

    def _make(self, i: int) -> int:
        self.begun.release()
        assert self.allowed.acquire(timeout=PATIENCE)
        return i

    def end(self) -> None:
        self.allowed.release(99)


def test_a_state_waits_for_one_element_at_most() -> None:
    for _ in range(20):  # the thread might be slow to come back for its run
        turns, states = Turns(), list[Any]()
        with Pumped(turns.flow, 9) as pumped:
            turns.begun.acquire()
            asking = in_thread(lambda: states.append(pumped.state()))  # noqa: B023
            waits = pumped.pump._transfer._turnstile.locked
            assert eventually(lambda: waits() or not asking.is_alive())  # noqa: B023
            assert asking.is_alive()  # for the run is at work
            turns.allowed.release()
            asking.join(PATIENCE)
            assert not asking.is_alive()
            turns.end()
        assert states[0]["position"] == 0


def test_above_a_filter_a_resume_repeats_few_elements() -> None:
    made: list[int] = []

    def note(i: int) -> int:
        made.append(i)
        return i

    flow = fl.from_range(1000).map(note).filter(lambda i: i % 2 == 0)
    with Pumped(flow, 40) as pumped:
        pumped.take_all([40] * 5)
        assert eventually(lambda: pumped.pump.fill == 40)
        state = pumped.state()
    made.clear()
    assert next(flow.resume(state)) == 400
    assert 400 - 2 * 16 <= min(made) <= 400


def test_taken_elements_are_not_referenced_by_the_pump() -> None:
    class Thing:
        pass

    allowed = threading.Event()

    def make(i: int) -> Thing:
        if i == 2:
            allowed.wait(PATIENCE)
        return Thing()

    with Pumped(fl.from_range(3).map(make), 3) as pumped:
        gone = [weakref.ref(thing) for thing in pumped.take(2)]
        gc.collect()
        assert [thing() for thing in gone] == [None, None]
        allowed.set()

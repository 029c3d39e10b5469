"""merge and latest: elements are yielded when they come, and none is lost unless it says so."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow, FlowError, InvalidFlow, NotResumable
from flowdsl.testing.endings import no_thread_is_left


def queued() -> tuple[queue.Queue[Any], Flow[Any, Any]]:
    q = queue.Queue[Any]()
    return q, fl.from_queue(q)


class Gate:
    """A stream whose elements the test releases, one by one."""

    def __init__(self) -> None:
        self.released = threading.Semaphore(0)
        self.read = threading.Semaphore(0)

    def elements(self, n: int) -> Iterator[int]:
        for i in range(n):
            self.released.acquire()
            yield i
            self.read.release()


class TestMerge:
    @given(st.lists(st.lists(st.integers(), max_size=20), min_size=1, max_size=4))
    def test_each_element_comes_once_and_each_stream_in_order(self, parts: list[list[int]]) -> None:
        streams = [fl.from_iterable([(k, x) for x in part]) for k, part in enumerate(parts)]
        first, *others = streams
        got = first.merge(*others).collect()
        for k, part in enumerate(parts):
            assert [x for j, x in got if j == k] == part

    def test_a_slow_stream_delays_no_other(self) -> None:
        slow, gate = queued(), Gate()
        flow = slow[1].merge(fl.from_iterable(lambda: gate.elements(3)))
        with iter(flow) as run:
            for i in range(3):
                gate.released.release()
                assert next(run) == i
            slow[0].put("late")
            assert next(run) == "late"
            slow[0].put(None)
            assert list(run) == []

    def test_an_error_of_a_stream_is_raised(self) -> None:
        never, failing = queued(), fl.from_range(3).map(lambda i: 1 // (1 - i))
        with iter(failing.merge(never[1])) as run:
            assert next(run) == 1
            with pytest.raises(ElementError, match=r"row 1 of from_range\(3\)"):
                next(run)

    def test_a_run_that_is_closed_leaves_no_thread(self) -> None:
        with no_thread_is_left():
            flow = fl.from_iterable(lambda: range(10**9)).merge(fl.from_iterable(lambda: range(5)))
            with iter(flow) as run:
                next(run)

    def test_streams_are_read_only_some_elements_ahead(self) -> None:
        read = list[int]()

        def numbers() -> Iterator[int]:
            for i in range(10_000):
                read.append(i)
                yield i

        with iter(fl.from_iterable(numbers).merge(fl.from_iterable(lambda: ()))) as run:
            assert next(run) == 0
            assert len(read) < 100

    def test_the_length_is_the_sum(self) -> None:
        assert len(fl.from_range(3).merge(fl.from_range(4))) == 7
        assert fl.from_range(3).merge(fl.from_range(4)).batch(7).map(len).collect() == [7]

    def test_a_run_has_no_state(self) -> None:
        run = iter(fl.from_range(3).merge(fl.from_range(4)))
        with pytest.raises(NotResumable, match=r"merge.*may yield another order in each pass"):
            run.state_dict()

    def test_elements_known_to_differ_are_refused(self) -> None:
        with pytest.raises(InvalidFlow, match="merge"):
            fl.from_range(3).merge(fl.from_items(["a"]))  # type: ignore[list-item]

    def test_workers_above_compute_the_same_elements(self) -> None:
        flow = fl.from_range(40).merge(fl.from_range(40)).map(abs).prefetch(procs=1)
        assert sorted(flow) == sorted([*range(40)] * 2)


class TestLatest:
    def test_a_slow_consumer_gets_the_last_elements(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "flowdsl")
        gate, dropped = Gate(), list[int]()
        flow = fl.from_iterable(lambda: gate.elements(10)).latest(3, on_drop=dropped.append)
        with iter(flow) as run:
            gate.released.release()
            assert next(run) == 0
            gate.read.acquire()
            for _ in range(9):
                gate.released.release()
            for _ in range(9):
                gate.read.acquire()
            assert list(run) == [7, 8, 9]
        assert dropped == list(range(1, 7))
        assert "latest(3) dropped 6 elements of from_iterable" in caplog.text
        assert "and yielded 4" in caplog.text

    def test_a_fast_consumer_gets_all_elements(self) -> None:
        gate = Gate()
        with iter(fl.from_iterable(lambda: gate.elements(20)).latest()) as run:
            for i in range(20):
                gate.released.release()
                assert next(run) == i
            assert list(run) == []

    @given(st.lists(st.integers()), st.integers(1, 5))
    def test_the_last_elements_are_never_dropped(self, xs: list[int], n: int) -> None:
        got = fl.from_iterable(lambda: xs).latest(n).collect()
        assert got[-n:] == xs[-n:]
        rest = iter(xs)
        assert all(x in rest for x in got)  # in order

    def test_an_error_is_raised_after_the_elements_that_are_kept(self) -> None:
        def failing() -> Iterator[int]:
            yield 1
            raise ValueError("broken")

        with iter(fl.from_iterable(failing).latest(2)) as run:
            assert next(run) == 1
            with pytest.raises(ElementError, match="broken"):
                next(run)

    def test_it_says_what_it_does_to_rows(self) -> None:
        flow = fl.from_range(3).latest()
        assert flow.effects == {fl.Resampled, fl.Unsized}
        with pytest.raises(NotResumable, match="latest"):
            iter(flow).state_dict()

    def test_wrong_arguments_are_refused(self) -> None:
        with pytest.raises(InvalidFlow, match="latest: n must be"):
            fl.from_range(3).latest(0)

    def test_a_run_that_is_closed_leaves_no_thread(self) -> None:
        with no_thread_is_left(), iter(fl.from_iterable(lambda: range(10**9)).latest(4)) as run:
            next(run)


def test_a_function_that_fails_on_a_dropped_element_is_named() -> None:
    def count(n: int) -> int:
        return n + "1"  # type: ignore[operator]  # it fails

    def stream() -> Iterator[int]:
        yield from range(100)

    flow = fl.from_iterable(stream).latest(1, on_drop=count).map(lambda x: time.sleep(0.01))
    with pytest.raises(FlowError, match=r"latest\(1\): on_drop=count failed on an element that"):
        flow.collect()

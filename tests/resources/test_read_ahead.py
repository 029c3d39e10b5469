"""Read-ahead: a thread reads the stream below a prefetch, without changing the elements."""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow
from flowdsl.elements.nbytes import nbytes_of
from flowdsl.nodes import Row
from flowdsl.resources import read_ahead
from flowdsl.resources.read_ahead import ReadAhead
from flowdsl.testing.endings import no_thread_is_left
from tests.sampling import examples
from tests.waiting import eventually

PATIENCE = 60.0

AnyFlow = Flow[Any, Any]


def numbered(n: int) -> Iterator[Row[int]]:
    return enumerate(range(n))


def reader(
    begin: Callable[[], Iterator[Row[Any]]], most: int = 4, nbytes: int = 10**9, **how: Any
) -> ReadAhead[Any]:
    how.setdefault("close", lambda: None)
    return ReadAhead("a stream", begin, max_rows=lambda: most, size=nbytes_of, nbytes=nbytes, **how)


class TestReader:
    @settings(max_examples=examples(100))
    @given(
        st.integers(0, 40),
        st.integers(1, 9),
        st.sampled_from([1, 100, 10**9]),
        st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1),
    )
    def test_rows_come_once_and_in_order_for_any_takes(
        self, n: int, most: int, nbytes: int, takes: list[tuple[int, int]]
    ) -> None:
        woken = threading.Semaphore(0)
        rows = reader(lambda: numbered(n), most, nbytes, wake=woken.release)
        got: list[Row[int]] = []
        k = 0
        while True:
            groups, each = takes[k % len(takes)]
            taken = rows.take(groups * each, each)
            if taken is None:
                assert woken.acquire(timeout=PATIENCE), "who asked in vain was not woken"
                continue
            got += taken
            k += 1
            if not taken or len(taken) % each:
                break
        assert got == list(numbered(n))
        assert rows.nbytes == 0
        rows.stop()

    @pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3)])
    def test_an_error_comes_after_the_rows_before_it(self, error: BaseException) -> None:
        def failing() -> Iterator[Row[int]]:
            yield from numbered(3)
            raise error

        rows = reader(failing)
        got: list[Any] = []
        while taken := _next(rows):
            got += taken
        assert got == list(numbered(3))
        assert rows.error is error

    @pytest.mark.parametrize(("most", "nbytes"), [(3, 10**9), (100, 250)])
    def test_read_ahead_is_limited(self, most: int, nbytes: int) -> None:
        came = threading.Semaphore(0)

        def arrays() -> Iterator[Row[Any]]:
            for i in range(20):
                came.release()
                yield i, np.zeros(100, np.uint8)

        rows = reader(arrays, most, nbytes)
        for _ in range(3):
            assert came.acquire(timeout=PATIENCE)
        assert eventually(lambda: rows.nbytes == 300)
        assert not came.acquire(timeout=0.1)
        assert len(_next(rows)) == 3
        for _ in range(3):
            assert came.acquire(timeout=PATIENCE)
        rows.stop()

    def test_a_group_may_exceed_the_limits(self) -> None:
        rows = reader(lambda: numbered(7), most=1, nbytes=0)
        got: list[list[Row[Any]]] = []
        while len(got) < 2:
            if (taken := rows.take(3, 3)) is not None:
                got.append(taken)
        assert got == [[(0, 0), (1, 1), (2, 2)], [(3, 3), (4, 4), (5, 5)]]
        rows.stop()

    @pytest.mark.parametrize(("group", "count"), [(1, 3), (2, 4), (5, 5)])
    def test_rows_are_taken_up_to_a_limit_in_bytes(self, group: int, count: int) -> None:
        rows = reader(lambda: ((i, bytes(100)) for i in range(40)), most=20, nbytes=10**9)
        rows.wait()
        while rows.nbytes < 2000:
            time.sleep(0.001)
        taken = rows.take(20, group, most_bytes=250)
        assert taken is not None
        assert [position for position, _ in taken] == list(range(count))
        rows.stop()

    def test_the_thread_has_the_context_of_its_creator(self) -> None:
        variable = contextvars.ContextVar("variable", default=0)
        variable.set(7)
        rows = reader(lambda: iter([(0, variable.get())]))
        assert _next(rows) == [(0, 7)]

    def test_the_stream_is_closed_once_in_its_thread(self) -> None:
        threads: list[threading.Thread] = []
        rows = reader(
            lambda: numbered(100), close=lambda: threads.append(threading.current_thread())
        )
        _next(rows)
        rows.stop()
        rows.stop()
        assert len(threads) == 1
        assert threads[0] is not threading.current_thread()

    def test_a_collected_reader_ends_its_thread(self) -> None:
        with no_thread_is_left():
            rows = reader(lambda: numbered(100))
            gone = weakref.ref(rows)
            del rows
            gc.collect()
            assert gone() is None


def _next(rows: ReadAhead[Any]) -> list[Row[Any]]:
    while (taken := rows.take(100)) is None:
        rows.wait()
    return taken


def same(x: int) -> int:
    return x


def bare(flow: AnyFlow) -> AnyFlow:
    return flow.prefetch(procs=1)


def mapped(flow: AnyFlow) -> AnyFlow:
    return flow.map(same).prefetch(procs=1)


def in_threads(flow: AnyFlow) -> AnyFlow:
    return flow.map(same).prefetch(threads=2)


WAYS = [bare, mapped, in_threads]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


class TestRun:
    @ways
    def test_the_next_element_is_read_while_the_consumer_has_one(self, way: Any) -> None:
        asked = [threading.Event() for _ in range(4)]

        def stream() -> Iterator[int]:
            for i, event in enumerate(asked):
                event.set()
                yield i

        with iter(way(fl.from_iterable(stream))) as run:
            assert next(run) == 0
            assert asked[1].wait(PATIENCE), "nothing was read while the consumer was at work"
            assert list(run) == [1, 2, 3]

    @ways
    def test_an_element_is_delivered_before_the_next_is_read(self, way: Any) -> None:
        goes_on = [threading.Event() for _ in range(5)]

        def stream() -> Iterator[int]:
            for i, event in enumerate(goes_on):
                assert event.wait(PATIENCE)
                yield i

        got = []
        run = iter(way(fl.from_iterable(stream)))
        for event in goes_on:
            event.set()
            got.append(next(run))  # the stream waits for the next event
        assert got == [0, 1, 2, 3, 4]
        assert list(run) == []

    @ways
    def test_the_generator_is_closed_with_the_run(self, way: Any) -> None:
        closed: list[str] = []

        def stream() -> Iterator[int]:
            try:
                yield from count()
            finally:
                closed.append(threading.current_thread().name)

        flow = way(fl.from_iterable(stream))
        with no_thread_is_left(), iter(flow) as run:
            next(run)
        assert len(closed) == 1
        with no_thread_is_left():
            assert flow.take(3).collect() == [0, 1, 2]
        assert len(closed) == 2
        with no_thread_is_left():
            next(iter(flow))
            gc.collect()
        assert len(closed) == 3

    @ways
    def test_errors_of_closing_are_raised_by_close(self, way: Any) -> None:
        def stream() -> Iterator[int]:
            try:
                yield from count()
            finally:
                raise OSError("still open")

        run = iter(way(fl.from_iterable(stream)))
        next(run)
        with pytest.raises(fl.FlowError, match="failed as it was closed") as failed:
            run.close()
        assert isinstance(failed.value.__cause__, OSError)

    @ways
    @pytest.mark.parametrize("taken", [0, 3])
    def test_a_blocked_source_ends_with_the_run(
        self,
        way: Any,
        taken: int,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(read_ahead, "SECONDS_TO_END", 0.05)
        blocked, gate = threading.Event(), threading.Event()

        def stream() -> Iterator[int]:
            yield from range(4)
            blocked.set()
            gate.wait()

        run = iter(way(fl.from_iterable(stream)))
        assert list(islice(run, taken)) == list(range(taken))
        if taken:
            assert blocked.wait(60)  # it is read ahead
            run.close()
            assert "from_iterable(stream): the source is still busy" in caplog.text
        gate.set()

    @ways
    def test_an_error_is_raised_at_its_position(self, way: Any) -> None:
        def stream() -> Iterator[int]:
            yield from range(5)
            raise OSError("gone")

        run = iter(way(fl.from_iterable(stream)))
        assert [next(run) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(fl.ElementError, match=r"failed on element 5") as failed:
            next(run)
        assert isinstance(failed.value.__cause__, OSError)

    def test_states_equal_states_without_read_ahead(self) -> None:
        rows = fl.from_range(50).filter(_odd).flat_map(_twice)
        plain, ahead = iter(rows), iter(rows.prefetch(procs=1))
        for _ in range(20):
            assert plain.state_dict() == ahead.state_dict()
            assert next(plain) == next(ahead)
        assert list(rows.prefetch(procs=1).resume(ahead.state_dict())) == list(plain)

    def test_two_pools_in_one_flow(self) -> None:
        flow = (
            fl.from_iterable(range(300))
            .map(same)
            .prefetch(procs=1)
            .flat_map(_twice)
            .map(same)
            .prefetch(threads=2)
        )
        assert flow.collect() == [i for i in range(300) for _ in range(2)]
        with no_thread_is_left(), iter(flow) as run:
            next(run)
        assert flow.take(7).collect() == [0, 0, 1, 1, 2, 2, 3]


def _odd(i: int) -> bool:
    return i % 2 == 1


def _twice(i: int) -> list[int]:
    return [i, i]


PROGRAM = """
import os, signal, sys, threading, time
import flowdsl as fl

def say(*what):
    os.write(1, "".join(f"{one}\\n" for one in what).encode())  # at once: two threads do

is_blocked = threading.Event()

def stream():
    yield 0
    yield 1
    say("blocked")
    is_blocked.set()
    threading.Event().wait()

flow = fl.from_iterable(stream).{way}
"""


def program(way: str, rest: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM.replace("{way}", way) + rest]


@pytest.mark.parametrize("way", ["prefetch(procs=1)", "map(abs).prefetch(procs=1)"])
class TestPrograms:
    def test_the_end_of_a_program_does_not_wait_for_the_source(self, way: str) -> None:
        ended = subprocess.run(
            program(way, "run = iter(flow)\nsay(next(run), next(run))\nis_blocked.wait()\n"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ended.returncode == 0, ended.stderr
        assert sorted(ended.stdout.split()) == ["0", "1", "blocked"]

    def test_ctrl_c_ends_the_program(self, way: str) -> None:
        rest = "for x in flow:\n    say(x)\n"
        with subprocess.Popen(
            program(way, rest), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as started:
            try:
                assert started.stdout is not None
                lines = {started.stdout.readline() for _ in range(3)}
                assert lines == {"0\n", "1\n", "blocked\n"}
                started.send_signal(signal.SIGINT)
                _, err = started.communicate(timeout=PATIENCE)
            finally:
                started.kill()
        assert started.returncode == -signal.SIGINT
        assert "KeyboardInterrupt" in err

    def test_a_fork_cannot_use_the_reader(self, way: str) -> None:
        rest = """
run = iter(flow)
next(run)
child = os.fork()
if child == 0:
    try:
        next(run)
        next(run)
    except fl.FlowError as error:
        say("fork" in str(error))
    del run
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
say(next(run))
"""
        ended = subprocess.run(
            [*program(way, rest)], capture_output=True, text=True, timeout=30, env={**os.environ}
        )
        assert ended.returncode == 0, ended.stderr
        assert "True" in ended.stdout.split()
        assert "1" in ended.stdout.split()

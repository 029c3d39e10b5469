"""Ends of a pump: in every way it can end, nothing is left behind."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.feeding.pump import EndOfPass, Pump, Sink
from tests.feeding.buffered import Queued
from tests.feeding.watched import PATIENCE, Pumped, in_thread, pump_threads
from tests.waiting import eventually

ENDLESS = fl.from_range(9).repeat()


class Narrow(Sink[int]):
    """A sink that is always full: ``put`` waits until it is closed."""

    def __init__(self) -> None:
        self.waits, self.closed = threading.Event(), threading.Event()

    def put(self, element: int, position: int) -> None:
        self.waits.set()
        self.closed.wait()
        raise BrokenPipeError

    def close(self) -> None:
        self.closed.set()


def test_stopping_ends_a_put_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    sink = Narrow()
    pump = Pump(iter(ENDLESS), sink)
    assert sink.waits.wait(PATIENCE)
    pump.stop(PATIENCE)
    assert not pump_threads()
    assert not caplog.records  # what it raised then is for nobody


def test_a_waiting_consumer_sees_an_error_when_stopped() -> None:
    never = threading.Event()
    pump = Pump(iter(fl.from_range(3).map(lambda i: i if i < 2 else never.wait())), Queued[int]())
    raised: list[Exception] = []

    def take() -> None:
        try:
            pump.take(3)
        except (EndOfPass, fl.FlowError) as error:
            raised.append(error)

    assert eventually(lambda: pump.fill == 2)
    taking = in_thread(take)
    pump.stop(0)
    taking.join(PATIENCE)
    never.set()
    assert [str(error) for error in raised] == ["Pump: this pass was stopped; begin another one"]
    assert eventually(lambda: not pump_threads())


def test_a_flow_that_is_busy_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def slow(i: int) -> int:
        busy.set()
        assert go_on.wait(PATIENCE)
        return i

    pump = Pump(iter(fl.from_range(3).map(slow)), Queued[int]())
    assert busy.wait(PATIENCE)
    pump.stop(0)  # it would wait for ever
    assert [record.getMessage() for record in caplog.records] == [
        "Pump: the flow is still computing an element; the pass ends when it is done"
    ]
    (thread,) = pump_threads()
    go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    pump.stop()  # once more does no harm
    assert len(caplog.records) == 1


def test_a_function_of_the_flow_may_stop_it() -> None:
    pumps: list[Pump[int]] = []
    known = threading.Event()

    def stop(i: int) -> int:
        assert known.wait(PATIENCE)
        pumps[0].stop()
        return i

    pumps.append(Pump(iter(fl.from_range(3).map(stop)), Queued[int]()))
    known.set()
    with pytest.raises(fl.FlowError, match="was stopped"):
        pumps[0].take(3)
    assert eventually(lambda: not pump_threads())


def test_errors_while_a_stopped_pass_closes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def elements() -> Iterator[int]:
        try:
            yield from range(99)
        finally:
            raise LookupError("no such file")

    with Pumped(fl.from_iterable(elements), 2) as pumped:
        pumped.take()
    (record,) = caplog.records
    assert record.getMessage() == "Pump: the pass did not close cleanly"
    assert record.exc_info is not None
    assert "failed as it was closed" in str(record.exc_info[1])


def test_a_finished_pass_has_closed_its_run() -> None:
    with Pumped(fl.from_range(3), 5) as pumped:
        assert eventually(lambda: not pump_threads())  # its thread is gone as well
        assert pumped.run.closed_by == ["Pump"]
        assert pumped.take(3) == [0, 1, 2]
        assert pumped.state()["position"] == 3


def test_a_run_is_not_closed_during_state_dict() -> None:
    asked, answer = threading.Event(), threading.Event()
    with Pumped(ENDLESS, 2) as pumped:

        def slow(position: int) -> dict[str, object]:
            with pumped.run.alone("state_dict"):
                asked.set()
                assert answer.wait(PATIENCE)
            return {}

        pumped.run.state_dict = slow  # type: ignore[method-assign]  # of this run alone
        asking = in_thread(pumped.pump.state_dict)
        assert asked.wait(PATIENCE)
        pumped.pump.stop(0.1)  # so long it has to come to the run, which it must not get
        answer.set()
        asking.join(PATIENCE)


# -- forgotten ------------------------------------------------------------------------------------


class Consumer:
    """Refers to a pump in a reference cycle, which only the garbage collector frees."""

    def __init__(self, flow: fl.Flow[int]) -> None:
        self.me = self
        self.pump = Pump(iter(flow), Queued[int](), capacity=2)


def forgotten(flow: fl.Flow[int]) -> Callable[[], Consumer | None]:
    consumer = Consumer(flow)
    consumer.pump.take()
    return weakref.ref(consumer)


def test_a_collected_pump_is_stopped() -> None:
    gone = forgotten(ENDLESS)
    gc.collect()
    assert gone() is None
    assert eventually(lambda: not pump_threads())


def test_another_thread_may_collect_a_pump() -> None:
    gone = forgotten(ENDLESS)
    collecting = in_thread(gc.collect)
    collecting.join(PATIENCE)
    assert not collecting.is_alive()
    assert gone() is None
    assert eventually(lambda: not pump_threads())


def test_its_own_thread_may_collect_a_pump() -> None:
    dropped, collected = threading.Event(), threading.Event()

    def make(i: int) -> int:
        if i:
            assert dropped.wait(PATIENCE)
            gc.collect()
            collected.set()
        return i

    gone = forgotten(fl.from_range(99).map(make))
    dropped.set()
    assert collected.wait(PATIENCE)
    assert eventually(lambda: not pump_threads())
    assert gone() is None


def test_a_failed_pump_is_not_kept_by_its_error() -> None:
    consumer = Consumer(fl.from_range(3).map(lambda i: 1 // i))
    with pytest.raises(fl.ElementError):
        consumer.pump.take()
    assert eventually(lambda: not pump_threads())  # the pass is over, and so is its thread
    gone = weakref.ref(consumer.pump)
    del consumer
    gc.collect()
    assert gone() is None


# -- programs, each in a process of its own -------------------------------------------------------

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os, signal, sys, threading
import flowdsl as fl
from flowdsl.feeding import pump
from tests.feeding.buffered import Buffered, Queued

def stuck(i):
    if i == 2:
        threading.Event().wait()
    return i

def read():
    try:
        yield from range(99)
    finally:
        print("closed", flush=True)

"""


PATIENT = "pump._EXIT_TIMEOUT = 60.0\n"
"""The exit of the program waits for the flow, however slow the machine is."""


def command(program: str) -> list[str]:
    return [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM + program]


def output(program: str) -> str:
    """Return the output of a program that must end without an error."""
    ended = subprocess.run(
        command(program), capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def interrupted(program: str, after: str) -> tuple[str, str, int]:
    """Return output, errors and status of a program that gets Ctrl-C after this line."""
    with subprocess.Popen(
        command(program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == after
            started.send_signal(signal.SIGINT)
            out, err = started.communicate(timeout=PATIENCE)
        finally:
            started.kill()
    return out, err, started.returncode


def test_ctrl_c_ends_a_waiting_loop() -> None:
    program = """
for i in Buffered(fl.from_range(3).map(stuck)):
    if i:
        print("waiting", flush=True)
"""
    _, err, status = interrupted(program, after="waiting\n")
    assert "KeyboardInterrupt" in err
    assert status in (-signal.SIGINT, 130)


def test_after_ctrl_c_the_pass_continues() -> None:
    program = """
go_on = threading.Event()
elements = Buffered(fl.from_range(4).map(lambda i: i if i < 2 else go_on.wait() and i))
try:
    print(next(elements), next(elements), flush=True)
    next(elements)
except KeyboardInterrupt:
    go_on.set()
print(*elements)
"""
    assert interrupted(program, after="0 1\n") == ("2 3\n", "", 0)


def test_a_program_ends_while_its_flow_is_stuck() -> None:
    assert output("print(next(Buffered(fl.from_range(3).map(stuck))))") == "0\n"


def test_the_end_of_a_program_ends_the_pass() -> None:
    program = f"{PATIENT}elements = Buffered(fl.from_iterable(read)); print(next(elements))"
    assert output(program) == "0\nclosed\n"


def test_a_fork_cannot_continue_a_pass_and_ends_nothing() -> None:
    program = f"""
{PATIENT}
parent = os.getpid()
Queued.close = lambda self: os.getpid() == parent or print("closed by the fork", flush=True)
elements = Buffered(fl.from_iterable(read))
print(next(elements), flush=True)
if not os.fork():
    for use in (elements.__next__, elements.state_dict):
        try:
            use()
        except fl.FlowError as error:
            print(error, flush=True)
    elements.close()
    sys.exit()
os.wait()
print(next(elements))
"""
    refused = (
        "Buffered: this pass belongs to the process that began it, and this process is a "
        "fork of that one; begin a new pass here"
    )
    assert output(program).splitlines() == ["0", refused, refused, "1", "closed"]

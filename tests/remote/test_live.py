"""Senders that fall silent, and senders that are not flowdsl."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

import flowdsl as fl
from flowdsl import InvalidFlow, SourceError, SpecMismatch
from flowdsl.remote.message import Route
from flowdsl.remote.receive_state import ReceiveState, SenderRecord, Tally
from tests.remote.wires import ReceiverClock


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/rows"


class Sensor:
    """A sender in a thread, whose flow stops at some element until it is released."""

    def __init__(self, address: str, n: int, stops_at: int | None = None) -> None:
        self.release = threading.Event()
        self._stops_at = stops_at
        self._flow = fl.from_iterable(lambda: self._elements(n))
        self._thread = threading.Thread(target=self._send, args=[address], daemon=True)
        self._thread.start()

    def _send(self, address: str) -> None:
        with suppress(SourceError):  # the receiver may leave before the end
            self._flow.send_zmq(address, timeout=60)

    def _elements(self, n: int) -> Iterator[int]:
        for i in range(n):
            if i == self._stops_at:
                self.release.wait()
            yield i

    def end(self) -> None:
        self.release.set()
        self._thread.join()


class TestSilence:
    def test_a_sender_that_falls_silent_is_an_error_while_another_lives(
        self, address: str, clock: ReceiverClock
    ) -> None:
        dead, alive = Sensor(address, 10, stops_at=2), Sensor(address, 10**9)
        tally, got = Tally(), list[int]()
        flow = fl.from_zmq(address, int, senders=2, sender_timeout=5, tally=tally)
        # Once two elements of each are here, time passes when one is heard: that can be one only.
        clock.runs = lambda heard: heard and got.count(1) == 2
        with (
            iter(flow) as run,
            pytest.raises(SourceError, match=r"has not been heard for 5 s, after 2 elements"),
        ):
            got.extend(run)
        assert max(tally.ages.values()) >= 5
        for sensor in (dead, alive):
            sensor.end()

    def test_a_sender_that_never_starts_is_an_error(
        self, address: str, clock: ReceiverClock
    ) -> None:
        alive = Sensor(address, 10**9)
        run = iter(fl.from_zmq(address, int, senders=2, sender_timeout=5))
        assert next(run) == 0
        clock.runs = lambda heard: True
        with pytest.raises(SourceError, match=r"1 of 2 senders have not been heard at all for 5 "):
            list(run)
        alive.end()

    def test_a_sender_that_waits_for_the_end_of_another_is_a_warning(
        self, address: str, clock: ReceiverClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The first cannot end, as the buffer of the shuffle waits for elements of the second."""
        caplog.set_level(logging.WARNING, "flowdsl")
        first = Sensor(address, 3)
        second = list[Sensor]()

        def runs(heard: bool) -> bool:
            if "1 of 2 senders have not been heard at all for 30.0 s" in caplog.text and not second:
                second.append(Sensor(address, 3))
            return not second

        clock.runs = runs
        got = fl.from_zmq(address, int, senders=2).shuffle(buffer=5, seed=1).collect()
        assert sorted(got) == [0, 0, 1, 1, 2, 2]
        assert re.search(r"incomplete batch: 3 of \S+ \(\w+\); a sender ends when", caplog.text)
        assert caplog.text.count("not been heard at all") == 1
        for sensor in (first, *second):
            sensor.end()

    def test_it_is_a_warning_where_senders_come_and_go(
        self, address: str, clock: ReceiverClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "flowdsl")
        silent = Sensor(address, 5, stops_at=2)

        def is_reported() -> bool:
            said = "has not been heard for 5 s, after 2 elements; others may continue"
            return said in caplog.text

        def runs(heard: bool) -> bool:
            if is_reported():
                silent.release.set()
            return True

        flow = fl.from_zmq(address, int, senders=None, sender_timeout=5)
        with iter(flow) as run:
            got = [next(run), next(run)]
            clock.runs = runs
            got += [next(run) for _ in range(3)]
        silent.end()
        assert got == list(range(5))
        assert is_reported()
        assert "is heard again" in caplog.text

    def test_the_tally_has_the_age_of_the_last_message_of_each_sender(self) -> None:
        tally = Tally()
        tally.hear("a")
        tally.hear("b")
        tally.forget("b")
        assert list(tally.ages) == ["a"]
        assert 0 <= tally.ages["a"] < 5

    def test_each_silence_is_reported_once_and_not_before_this_end_listened(self) -> None:
        state = ReceiveState(2, 10, Tally())
        record = SenderRecord(b"1" * 16, Route(0, b""), 0, 0, 0)
        record.heard = now = time.monotonic()
        record.heard -= 100
        state.records[record.sender] = record
        assert list(state.newly_silent(10, now)) == []
        assert list(state.newly_silent(10, now - 50)) == [record]
        assert list(state.newly_silent(10, now - 50)) == []

    @pytest.mark.parametrize("timeout", [0, -1, "1", float("inf")])
    def test_wrong_timeouts_are_refused(self, address: str, timeout: Any) -> None:
        with pytest.raises(InvalidFlow, match="sender_timeout must be a number of seconds > 0"):
            fl.from_zmq(address, sender_timeout=timeout)


@pytest.fixture
def pushing(address: str) -> Iterator[Any]:
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.connect(address)
    yield socket
    socket.close(linger=0)
    context.term()


class TestOtherFormats:
    def test_bytes_arrive_as_they_are_pushed(self, address: str, pushing: Any) -> None:
        with iter(fl.from_zmq(address, format="bytes")) as run:
            for i in range(3):
                pushing.send(b"frame %d" % i)
            assert [next(run) for _ in range(3)] == [b"frame 0", b"frame 1", b"frame 2"]

    def test_messagepack_arrives_as_objects(self, address: str, pushing: Any) -> None:
        rows = [{"id": i, "values": [0.5, i], "name": "ä"} for i in range(3)]
        with iter(fl.from_zmq(address, format="msgpack")) as run:
            for row in rows:
                pushing.send(msgspec.msgpack.encode(row))
            assert [next(run) for _ in range(3)] == rows

    def test_what_is_not_messagepack_is_named(self, address: str, pushing: Any) -> None:
        with iter(fl.from_zmq(address, format="msgpack")) as run:
            pushing.send(msgspec.msgpack.encode(1))
            pushing.send(b"\xc1")
            assert next(run) == 1
            with pytest.raises(SourceError, match=r"element 1 at .*: not MessagePack"):
                next(run)

    def test_elements_are_checked_against_their_declaration(
        self, address: str, pushing: Any
    ) -> None:
        with iter(fl.from_zmq(address, int, format="msgpack")) as run:
            pushing.send(msgspec.msgpack.encode("one"))
            with pytest.raises(SpecMismatch, match="element 0"):
                next(run)

    def test_several_frames_are_refused(self, address: str, pushing: Any) -> None:
        with iter(fl.from_zmq(address, format="bytes")) as run:
            pushing.send_multipart([b"a", b"b"])
            with pytest.raises(SourceError, match=r"element 0 at .*: not an element: 2 frames"):
                next(run)

    def test_unknown_formats_and_arguments_of_others_are_refused(self, address: str) -> None:
        with pytest.raises(InvalidFlow, match="format must be 'flowdsl', 'zmq_ops', 'bytes' or"):
            fl.from_zmq(address, format="json")  # type: ignore[call-overload]
        with pytest.raises(InvalidFlow, match="there is no senders= with format='bytes'"):
            fl.from_zmq(address, format="bytes", senders=2)  # type: ignore[call-overload]

    def test_a_slow_consumer_can_drop_the_oldest(self, address: str, pushing: Any) -> None:
        frames = fl.from_zmq(address, format="bytes").latest(2)
        assert frames.effects >= {fl.Resampled, fl.Unsized}
        with iter(frames) as run:
            pushing.send(b"first")
            assert next(run) == b"first"
            for i in range(100):
                pushing.send(b"%d" % i)
            deadline = time.monotonic() + 20
            while (got := next(run)) != b"99":
                assert time.monotonic() < deadline, got

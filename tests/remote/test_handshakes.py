"""Failed handshakes: they are counted, each kind is logged once, and errors list them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from flowdsl.remote.handshakes import Handshakes

ADDRESS = "tcp://somewhere:5555"
OUTCOMES = {"ok": "SUCCEEDED", "auth": "FAILED_AUTH"}


class Watched:
    """A socket whose monitor emits the events of the test."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.context, self.monitor_end = context, context.socket(zmq.PAIR)
        self.watching: list[Handshakes] = []  # as long as the sockets are open

    def monitor(self, address: str, events: int) -> None:
        self.monitor_end.bind(address)

    def emit(self, event: int, value: int = 0) -> None:
        self.monitor_end.send_multipart([struct.pack("=hi", event, value), b""], zmq.NOBLOCK)


@pytest.fixture
def watched() -> Iterator[Any]:
    with zmq.Context() as context:
        watched = Watched(context)
        yield watched
        context.destroy(0)


def watching(watched: Any, binds: bool, secured: bool = True) -> Handshakes:
    handshakes = Handshakes("who", binds, secured)
    handshakes.watch(watched, ADDRESS, zmq.Poller())
    watched.watching.append(handshakes)
    return handshakes


def test_a_broken_handshake_may_be_a_restart(
    watched: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handshakes = watching(watched, binds=False)
    for times in range(1, 6):
        watched.emit(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        handshakes.update()
        assert len(caplog.records) == (times >= 3)
    assert handshakes.summary.startswith(
        f"; failed handshakes at {ADDRESS!r}: 5, the other end closed"
    )


@pytest.mark.parametrize(
    ("event", "value", "binds", "secured", "said"),
    [
        ("AUTH", 400, True, True, "its public key is not among"),
        ("AUTH", 400, False, True, "the public key of this end is not among"),
        ("PROTOCOL", zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH, True, True, "only one of the"),
        ("PROTOCOL", zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC, True, True, "it was given a wrong"),
        (
            "PROTOCOL",
            zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED,
            True,
            False,
            "the other end does not speak",
        ),
        (
            "NO_DETAIL",
            32,
            True,
            True,
            "the other end closed the connection during the handshake: it",
        ),
        (
            "NO_DETAIL",
            32,
            False,
            False,
            "the other end closed the connection during the handshake: it",
        ),
    ],
)
def test_each_failure_is_described(
    watched: Any,
    caplog: pytest.LogCaptureFixture,
    event: str,
    value: int,
    binds: bool,
    secured: bool,
    said: str,
) -> None:
    handshakes = watching(watched, binds, secured)
    assert handshakes.summary == ""
    for _ in range(2):
        watched.emit(getattr(zmq, f"EVENT_HANDSHAKE_FAILED_{event}"), value)
    assert f"; failed handshakes at {ADDRESS!r}: 2, {said}" in handshakes.summary
    if not secured and event == "NO_DETAIL":  # most likely nothing
        assert not caplog.records
        return
    (record,) = caplog.records
    assert f"who: a handshake at {ADDRESS!r} failed: {said}" in record.getMessage()


def test_a_connection_that_ends_without_an_outcome_may_have_another_format(watched: Any) -> None:
    handshakes = watching(watched, binds=True)
    watched.emit(zmq.EVENT_ACCEPTED, 7)
    watched.emit(zmq.EVENT_DISCONNECTED, 7)
    assert handshakes.summary == (
        f"; failed handshakes at {ADDRESS!r}: 1, the connection ended before the handshake did: "
        f"the other end stopped, or has another format="
    )


def test_an_ended_connection_has_not_failed(watched: Any) -> None:
    handshakes = watching(watched, binds=False)
    watched.emit(zmq.EVENT_CONNECTED, 7)
    watched.emit(zmq.EVENT_HANDSHAKE_SUCCEEDED)  # without its connection
    watched.emit(zmq.EVENT_DISCONNECTED, 7)
    assert handshakes.summary == ""


@pytest.mark.parametrize(
    ("events", "failed"),
    [
        ("+1 +2 +3 ok ok ok -3 -1 -2", [0] * 9),
        ("+1 +2 ok -1 ok -2", [0] * 6),
        ("+1 ok +2 -2 -1", [0, 0, 0, 1, 1]),  # the success was before the second began
        ("+1 ok +2 ok -2 +2 -2 -1", [0, 0, 0, 0, 0, 0, 1, 1]),
        ("+1 +2 ok -2 -1", [0, 0, 0, 0, 1]),  # it was of one of them
        ("+1 +2 +3 auth ok -1 -2 -3", [0, 0, 0, 1, 1, 1, 1, 2]),
        ("+1 auth -1 +1 ok -1 +1 -1", [0, 1, 1, 1, 1, 1, 1, 2]),
    ],
)
def test_reported_failures_never_exceed_actual_ones(
    watched: Any, events: str, failed: list[int]
) -> None:
    """Outcomes of several concurrent handshakes do not name their connection."""
    handshakes, found = watching(watched, binds=True), list[int]()
    for event in events.split():
        if event[0] in "+-":
            kind = zmq.EVENT_ACCEPTED if event[0] == "+" else zmq.EVENT_DISCONNECTED
            watched.emit(kind, int(event[1:]))
        else:
            watched.emit(getattr(zmq, f"EVENT_HANDSHAKE_{OUTCOMES[event]}"))
        handshakes.update()
        found.append(handshakes.failed.total())
    assert found == failed


def test_a_failed_connection_that_ends_is_counted_once(watched: Any) -> None:
    handshakes = watching(watched, binds=True)
    for connection in (7, 8, 7):
        watched.emit(zmq.EVENT_ACCEPTED, connection)
        watched.emit(zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)  # without its connection
        watched.emit(zmq.EVENT_DISCONNECTED, connection)
    handshakes.update()
    assert handshakes.failed.total() == 3
    watched.emit(zmq.EVENT_ACCEPTED, 7)
    watched.emit(zmq.EVENT_DISCONNECTED, 7)
    assert "1, the connection ended before the handshake did: " in handshakes.summary


def test_only_ready_monitors_are_read(watched: Any) -> None:
    handshakes, poller = Handshakes("who", True, True), zmq.Poller()
    handshakes.watch(watched, ADDRESS, poller)
    watched.watching.append(handshakes)
    watched.emit(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    handshakes.update({})
    assert not handshakes.failed
    handshakes.update(dict(poller.poll(60_000)))
    assert handshakes.failed.total() == 1


def test_unread_events_do_not_block_the_socket(watched: Any) -> None:
    """A monitor that waits for room would block its socket."""
    handshakes = watching(watched, binds=True)
    for _ in range(5000):
        watched.emit(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    handshakes.update()
    assert handshakes.failed.total() == 5000

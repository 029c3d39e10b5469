"""Handshakes: reports of failed connections; without them, a refused peer looks like an absent one.

ZMQ retries a failed connection silently. Its monitor events show failures, but they identify a
connection only when it begins and ends, see ``_Monitor``.
"""

from __future__ import annotations

import logging
from bisect import bisect
from collections import Counter
from collections.abc import Container, Iterator
from itertools import count
from typing import Final

import attrs
import zmq

from flowdsl.resources.logs import logger

_log = logger()

_AUTH = zmq.EVENT_HANDSHAKE_FAILED_AUTH
_PROTOCOL = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_SILENT = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_BEGUN = (zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED)
_DONE = zmq.EVENT_HANDSHAKE_SUCCEEDED
_GONE = zmq.EVENT_DISCONNECTED
_STRANGER: Final = "its public key is not among those known here"
_UNKNOWN: Final = "the public key of this end is not among those known there"
_ONE_SIDED: Final = "only one of the two ends has security=Curve(...)"
_MISTAKEN: Final = "it was given a wrong public key for this end"
_ENDED: Final = (
    "the connection ended before the handshake did: the other end stopped, or has another format="
)
_CLOSED: Final = (
    "the other end closed the connection during the handshake: it exited, is another program, has "
    f"another format=, or {_ONE_SIDED}"
)
_CLOSED_BY_BINDING_END: Final = (
    "the other end closed the connection during the handshake, as it does if the public key given "
    "for it is wrong"
)
_FAILURES_BEFORE_WARNING: Final = 3
"""A failure that may mean that the other end restarts is logged when it occurs this often."""


@attrs.define(eq=False)
class _Monitor:
    """Reads the handshake events of one socket.

    ZMQ's events for the start and the end of a connection contain its descriptor, but the events
    for the outcome of a handshake do not. So outcomes are assigned by order: a connection that ends
    takes the first outcome since its start that no other connection has taken. If there is none,
    its handshake had no outcome and has failed. This never reports more failures than occurred.
    """

    address: str
    socket: zmq.Socket[bytes]
    _begun: dict[int, int] = attrs.field(factory=dict[int, int])
    """The open connections, each with the number of the event that began it."""
    _outcomes: list[int] = attrs.field(factory=list[int])
    """The numbers of outcome events that no connection has taken, in order."""
    _events: Iterator[int] = attrs.field(factory=count)

    def failures(self) -> Iterator[tuple[int, int]]:
        """Yield the events and values of the handshakes that failed since the last call."""
        from zmq.utils.monitor import recv_monitor_message  # imports asyncio: slow

        while self.socket.poll(0):
            message = recv_monitor_message(self.socket, zmq.NOBLOCK)
            event, value, number = message["event"], message["value"], next(self._events)
            if event in _BEGUN:
                self._begun[value] = number
            elif event != _GONE:
                self._outcomes.append(number)
                if event != _DONE:
                    yield event, value
            elif value in self._begun and not self._had_outcome(value):
                yield event, value

    def _had_outcome(self, connection: int) -> bool:
        """Take the outcome of a connection that ends; return False if there is none."""
        first = bisect(self._outcomes, self._begun.pop(connection))
        had_outcome = first < len(self._outcomes)
        del self._outcomes[first : first + 1]
        if not self._begun:
            self._outcomes.clear()
        return had_outcome


@attrs.define(eq=False)
class Handshakes:
    """Watches the handshakes of some sockets; each kind of failure is logged once."""

    who: str
    binds: bool
    secured: bool
    failed: Counter[tuple[str, str]] = attrs.field(factory=Counter[tuple[str, str]])
    """The number of failed handshakes, by address and reason."""
    _monitors: list[_Monitor] = attrs.field(factory=list[_Monitor])

    def watch(self, socket: zmq.Socket[bytes], address: str, poller: zmq.Poller) -> None:
        """Watch a socket; call this before it has a connection."""
        endpoint = f"inproc://handshakes-{len(self._monitors)}"
        events = (_AUTH, _PROTOCOL, _SILENT, *_BEGUN, _DONE, _GONE)
        socket.monitor(endpoint, sum(map(int, events)))
        monitor = socket.context.socket(zmq.PAIR)
        # A full bounded queue would block the watched socket until the events are read.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.setsockopt(zmq.LINGER, 0)
        monitor.connect(endpoint)
        poller.register(monitor, zmq.POLLIN)
        self._monitors.append(_Monitor(address, monitor))

    def close(self) -> None:
        """Stop watching."""
        for monitor in self._monitors:
            monitor.socket.close(0)
        self._monitors.clear()

    def update(self, ready: Container[object] | None = None) -> None:
        """Count and log new failures; with ``ready``, only of the sockets that it contains."""
        for monitor in self._monitors:
            if ready is not None and monitor.socket not in ready:
                continue
            for event, value in monitor.failures():
                what = self._meaning(event, value)
                self.failed[monitor.address, what] += 1
                self._log(monitor.address, what, self.failed[monitor.address, what])

    def _log(self, address: str, what: str, times: int) -> None:
        if times == (_FAILURES_BEFORE_WARNING if what in (_CLOSED_BY_BINDING_END, _ENDED) else 1):
            # without keys, the other end most likely just connected and left
            level = logging.WARNING if self.secured or what is not _CLOSED else logging.INFO
            _log.log(level, "%s: a handshake at %r failed: %s", self.who, address, what)

    @property
    def summary(self) -> str:
        """The failures, to append to an error message."""
        self.update()
        top = self.failed.most_common(2)
        return "".join(f"; failed handshakes at {at!r}: {n}, {what}" for (at, what), n in top)

    def _meaning(self, event: int, value: int) -> str:
        if event == _AUTH:
            return _STRANGER if self.binds else _UNKNOWN
        if event == _PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return f"{_ONE_SIDED}, or the other end is another program"
        if event == _PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
            return _MISTAKEN
        if event == _GONE:  # ZMQ reports no other event for incompatible socket types
            return _ENDED
        if event == _SILENT:
            return _CLOSED_BY_BINDING_END if self.secured and not self.binds else _CLOSED
        return "the other end does not speak ZMQ's protocol"

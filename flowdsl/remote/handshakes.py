"""Reports failed handshakes: without a report, a refused peer looks like an absent one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Iterator
from typing import Final

import attrs
import zmq

_log = logging.getLogger("flowdsl")

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
_OTHER_FORMAT: Final = "the other end has another format="
_LEFT: Final = f"the other end broke off: it ended then, has another format=, or {_ONE_SIDED}"
_ENDED: Final = "the other end broke off, as it does if the public key given for it is wrong"
_SURE: Final = 3
"""From this many silent failures on, the other end was not merely restarting."""


@attrs.define(eq=False)
class _Monitor:
    """Reads the handshake events of one socket."""

    address: str
    socket: zmq.Socket[bytes]
    _begun: set[int] = attrs.field(factory=set[int])
    """The connections whose handshake is under way."""
    _told: int = 0
    """The number of reported failed handshakes whose connection has not ended yet."""

    def failures(self) -> Iterator[tuple[int, int]]:
        """The events and values of the handshakes that failed since the last call."""
        from zmq.utils.monitor import recv_monitor_message  # imports asyncio: slow

        while self.socket.poll(0):
            told = recv_monitor_message(self.socket, zmq.NOBLOCK)
            event, value = told["event"], told["value"]
            if event in _BEGUN:
                self._begun.add(value)
            elif event == _DONE:
                self._begun.discard(value)
            elif event != _GONE:
                self._told += 1
                yield event, value
            elif value in self._begun:
                self._begun.discard(value)
                if not self._told:
                    yield event, value
                self._told = max(0, self._told - 1)


@attrs.define(eq=False)
class Handshakes:
    """Watches the handshakes of some sockets; each kind of failure is logged once."""

    who: str
    binds: bool
    secured: bool
    failed: Counter[tuple[str, str]] = attrs.field(factory=Counter[tuple[str, str]])
    """How often handshakes failed, by address and reason."""
    _monitors: list[_Monitor] = attrs.field(factory=list[_Monitor])

    def watch(self, socket: zmq.Socket[bytes], address: str, poller: zmq.Poller) -> None:
        """Watch a socket, before it has a connection."""
        told = f"inproc://handshakes-{len(self._monitors)}"
        events = (_AUTH, _PROTOCOL, _SILENT, *_BEGUN, _DONE, _GONE)
        socket.monitor(told, sum(map(int, events)))
        monitor = socket.context.socket(zmq.PAIR)
        # A full bounded queue would block the watched socket until the events are read.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.setsockopt(zmq.LINGER, 0)
        monitor.connect(told)
        poller.register(monitor, zmq.POLLIN)
        self._monitors.append(_Monitor(address, monitor))

    def look(self, ready: Container[object] | None = None) -> None:
        """Count and log new failures; with ``ready``, only of the sockets that it contains."""
        for monitor in self._monitors:
            if ready is not None and monitor.socket not in ready:
                continue
            for event, value in monitor.failures():
                what = self._meaning(event, value)
                self.failed[monitor.address, what] += 1
                self._log(monitor.address, what, self.failed[monitor.address, what])

    def _log(self, address: str, what: str, times: int) -> None:
        if times == (_SURE if what is _ENDED else 1):
            # without keys, the other end most likely just connected and left
            level = logging.WARNING if self.secured or what is not _LEFT else logging.INFO
            _log.log(level, "%s: a handshake at %r failed: %s", self.who, address, what)

    @property
    def said(self) -> str:
        """The failures, as the end of an error's message."""
        self.look()
        most = self.failed.most_common(2)
        return "".join(f"; failed handshakes at {at!r}: {n}, {what}" for (at, what), n in most)

    def _meaning(self, event: int, value: int) -> str:
        if event == _AUTH:
            return _STRANGER if self.binds else _UNKNOWN
        if event == _PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return _ONE_SIDED
        if event == _PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
            return _MISTAKEN
        if event == _GONE:  # ZMQ reports no error for incompatible socket types
            return _OTHER_FORMAT
        if event == _SILENT:
            return _ENDED if self.secured and not self.binds else _LEFT
        return "the other end does not speak ZMQ's protocol"

"""One pass of a receiver: connects the sockets to the receive state."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

import attrs
import zmq

from flowdsl.errors import FlowError, SourceError, SpecMismatch
from flowdsl.remote.message import Kind, unpack
from flowdsl.remote.receive_state import Item, ReceiveState, SenderRecord, Tally
from flowdsl.remote.schema import SchemaCheck
from flowdsl.remote.sockets import BEAT, LINGER, LINGER_OF_ERRORS, Endpoint, Link


@attrs.define(eq=False)
class Receiver:
    """One pass over the elements of the senders."""

    endpoint: Endpoint
    check: SchemaCheck
    senders: int | None
    trusted: bool
    timeout: float | None
    tally: Tally

    def elements(self) -> Iterator[Any]:
        """Yield the elements of all senders, in the order of arrival."""
        receive_state = ReceiveState(self.senders, self.endpoint.hwm, self.tally)
        kind = zmq.ROUTER if self.endpoint.bind else zmq.DEALER
        culprit: SenderRecord | None = None
        with Link(self.endpoint, kind) as link:
            try:
                while not receive_state.ended:
                    if not receive_state.ready:
                        self._wait(link, receive_state)
                    item = receive_state.hand_on()
                    _answer(link, receive_state, all_of_them=False)
                    if item.kind in (Kind.ELEMENT, Kind.PICKLED):
                        culprit = item.record
                        element = self._opened(item)
                        culprit = None
                        self.tally.addresses[link.address(item.record.route)] += 1
                        yield element
                _part(link, receive_state)
            except BaseException as error:
                blamed = culprit if isinstance(error, FlowError) else None
                for route, frames in receive_state.farewells(blamed, str(error)):
                    link.send(route, frames)
                link.close(LINGER_OF_ERRORS if receive_state.records else 0)
                raise

    def _wait(self, link: Link, receive_state: ReceiveState) -> None:
        """Wait until an item is ready."""
        since = monotonic()
        while not receive_state.ready:
            self._check_failed(receive_state)
            _answer(link, receive_state)
            if not _listen(link, receive_state):
                _greet(link, receive_state)
            if self.timeout is not None and monotonic() - since > self.timeout:
                senders = "any sender" if self.senders is None else f"{self.senders} to end"
                raise SourceError(
                    f"from_zmq: after {sum(self.tally.senders.values())} elements, none came in "
                    f"{self.timeout} s at {self.endpoint.addresses_text}, waiting for {senders}; "
                    f"of the senders, {receive_state.describe_senders()}; is flow.send_zmq running "
                    f"at the other end, with a key that is known here?{link.refusals}"
                )

    def _check_failed(self, receive_state: ReceiveState) -> None:
        """Record failed senders; raise an error if their elements are awaited."""
        for record in receive_state.records.values():
            if record.stopped is None:
                continue
            self.tally.stopped[record.name] = record.stopped
            if self.senders is not None and not record.ended:
                raise SourceError(
                    f"from_zmq: the sender {record.name} failed after "
                    f"{self.tally.senders[record.name]} elements: {record.stopped}"
                )

    def _opened(self, item: Item) -> Any:
        record = item.record
        try:
            return self.check(unpack(item.kind, item.frames, self.trusted))
        except (SourceError, SpecMismatch) as error:
            number = self.tally.senders[record.name] - 1
            raise type(error)(
                f"from_zmq: element {number} of the sender {record.name}: {error}"
            ) from error


def _answer(link: Link, receive_state: ReceiveState, all_of_them: bool = True) -> None:
    for route, frames in receive_state.replies(all_of_them):
        link.send(route, frames)


def _listen(link: Link, receive_state: ReceiveState) -> bool:
    """Process the messages that arrive within a beat; return True if there were any."""
    messages = link.receive(BEAT)
    for route, frames in messages:
        try:
            receive_state.receive(route, frames)
        except SourceError as error:
            raise SourceError(f"from_zmq: {link.address(route)!r}: {error}") from error
    return bool(messages)


def _greet(link: Link, receive_state: ReceiveState) -> None:
    """Announce this receiver to the known senders, and to peers that have not answered yet."""
    for record in receive_state.records.values():
        record.owed |= not record.closed
    if not link.addresses_peers:
        known = {record.route for record in receive_state.records.values()}
        for route in link.routes():
            if route not in known:
                link.send(route, receive_state.greeting())


def _part(link: Link, receive_state: ReceiveState) -> None:
    """Confirm to the senders that all elements arrived, and wait briefly for their last message."""
    until = monotonic() + LINGER
    while (
        not all(record.closed for record in receive_state.records.values()) and monotonic() < until
    ):
        _answer(link, receive_state)
        if not _listen(link, receive_state):
            _greet(link, receive_state)

"""One pass of a receiver: connects the sockets to the receive state.

A run reads ahead of its consumer: in batches, in buffers, in threads and workers. So an element is
acknowledged to its sender when the run reports it as delivered (``Receipts``), which may be after
the receiver's iterator has ended, or was closed. The sockets stay open until then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from time import monotonic
from typing import Any

import attrs
import zmq

from flowdsl.errors import FlowError, SourceError, SpecMismatch
from flowdsl.nodes import Receipts
from flowdsl.remote.message import Kind, unpack
from flowdsl.remote.receive_state import Item, ReceiveState, SenderRecord, Tally
from flowdsl.remote.schema import SchemaCheck
from flowdsl.remote.sockets import BEAT, LINGER, LINGER_OF_ERRORS, Endpoint, Link
from flowdsl.resources.cancellation import is_cancelled
from flowdsl.resources.logs import logger

_log = logger()

_SILENCE = 30.0
"""The seconds after which a silent sender is reported, unless ``sender_timeout`` is given."""
_LONG_PAUSE = 1.0
"""If this end pauses for more seconds, messages may wait unread: no sender counts as silent."""


@attrs.define(eq=False)
class Receiver:
    """One pass over the elements of the senders."""

    endpoint: Endpoint
    check: SchemaCheck
    senders: int | None
    trusted: bool
    timeout: float | None
    tally: Tally
    sender_timeout: float | None = None
    receipts: Receipts = attrs.field(factory=Receipts)
    _beat: float = attrs.field(factory=monotonic, init=False)
    """The time when a message to each sender was last made due, between two elements."""
    _listened: float = attrs.field(factory=monotonic, init=False)
    """The time when this end last listened."""
    _listens_since: float = attrs.field(factory=monotonic, init=False)
    """The time from which on this end has listened without a long pause."""
    _since: float = attrs.field(factory=monotonic, init=False)
    """The time when the pass began."""
    _misses: int = attrs.field(default=0, init=False)
    """The number of senders that were reported as never heard."""

    def elements(self) -> Iterator[Any]:
        """Yield the elements of all senders, in the order of arrival."""
        receive_state = ReceiveState(self.senders, self.endpoint.hwm, self.tally)
        kind = zmq.ROUTER if self.endpoint.bind else zmq.DEALER
        receipts, culprit = self.receipts, None
        self._since = self._listened = self._listens_since = monotonic()
        link = Link(self.endpoint, kind)
        try:
            while not receive_state.ended:
                if not receive_state.ready:
                    self._wait(link, receive_state)
                item = receive_state.take()
                self._owe_beat(receive_state)
                _answer(link, receive_state, all_of_them=False)
                if item.kind in (Kind.ELEMENT, Kind.PICKLED):
                    culprit = item.record
                    try:
                        element = self._element_of(item)
                    except SourceError as error:
                        if self.senders is not None:
                            raise
                        receive_state.refuse_last(item, str(error))
                        continue
                    culprit = None
                    self.tally.addresses[link.address(item.record.route)] += 1
                    receipts.on_yield(item.record.partition)
                    yield element
                    receipts.on_next()
                receive_state.acknowledge(receipts.delivered_of)
        except BaseException as error:
            if isinstance(error, GeneratorExit) or is_cancelled():
                receipts.park(self._until_delivered(link, receive_state))
            else:
                self._leave(link, receive_state, error, culprit)
            raise
        receipts.exhausted = True
        receipts.park(self._until_delivered(link, receive_state))

    def _until_delivered(self, link: Link, receive_state: ReceiveState) -> Generator[None]:
        """Acknowledge elements, at each step, until all are delivered or this is closed."""
        receipts = self.receipts
        with link:
            try:
                receive_state.acknowledge(receipts.delivered_of)
                while not (receipts.exhausted and receive_state.all_delivered):
                    yield
                    receive_state.acknowledge(receipts.delivered_of)
                    self._owe_beat(receive_state)
                    _answer(link, receive_state)
            except BaseException as error:
                self._leave(link, receive_state, error)
                raise
            _close_exchange(link, receive_state)

    def _owe_beat(self, receive_state: ReceiveState) -> None:
        """Once in a beat, make a message to each sender due: it says that this receiver is alive.

        The operators above may hold elements for longer than a sender's ``timeout``. No other
        message is due during this time.
        """
        if (now := monotonic()) - self._beat > BEAT:
            self._beat = now
            receive_state.owe_all()

    def _leave(
        self,
        link: Link,
        receive_state: ReceiveState,
        error: BaseException,
        culprit: SenderRecord | None = None,
    ) -> None:
        """Send the last messages to the senders and close the sockets, after an error.

        ``culprit`` is the sender of an invalid element, if there is one.
        """
        receive_state.acknowledge(self.receipts.delivered_of)
        blamed = culprit if isinstance(error, FlowError) else None
        for route, frames in receive_state.farewells(blamed, str(error)):
            link.send(route, frames)
        link.close(LINGER_OF_ERRORS if receive_state.records else 0)
        if receive_state.records:
            _log.info("from_zmq: left before the end; %s", receive_state.describe_delivered())

    def _wait(self, link: Link, receive_state: ReceiveState) -> None:
        """Wait until an item is ready."""
        since = monotonic()
        while not receive_state.ready:
            self._check_failed(receive_state)
            receive_state.acknowledge(self.receipts.delivered_of)
            _answer(link, receive_state)
            heard = _listen(link, receive_state)
            self._notice_silence(receive_state)
            self.tally.damaged = link.damaged
            if not heard:
                _greet(link, receive_state)
            if self.timeout is not None and monotonic() - since > self.timeout:
                refused = f"{link.refusals}{receive_state.refusals}"
                senders = "any sender" if self.senders is None else f"{self.senders} to end"
                raise SourceError(
                    f"from_zmq: after {sum(self.tally.senders.values())} elements, none came in "
                    f"{self.timeout} s at {self.endpoint.addresses_text}, waiting for {senders}; "
                    f"of the senders, {receive_state.describe_senders()}; is flow.send_zmq running "
                    f"at the other end, with a key that is known here?{refused}"
                )

    def _notice_silence(self, receive_state: ReceiveState) -> None:
        """Report senders that have been silent for long.

        Raises:
            SourceError: The pass cannot end without such a sender, and has a ``sender_timeout``.
        """
        now = monotonic()
        if now - self._listened > _LONG_PAUSE:  # the consumer was busy: messages may be waiting
            self._listens_since = now
        self._listened = now
        seconds = _SILENCE if self.sender_timeout is None else self.sender_timeout
        missing = 0 if self.senders is None else self.senders - len(receive_state.records)
        if self.sender_timeout is not None and missing > 0 and now - self._since > seconds:
            raise SourceError(
                f"from_zmq: {missing} of {self.senders} senders have not been heard at all for "
                f"{seconds} s; of the senders, {receive_state.describe_senders()}"
            )
        if missing not in (0, self._misses) and now - self._since > seconds:
            self._misses = missing
            _log.warning(
                "from_zmq: %d of %d senders have not been heard at all for %s s%s",
                missing,
                self.senders,
                seconds,
                receive_state.describe_held(),
            )
        for record in receive_state.newly_silent(seconds, self._listens_since):
            text = (
                f"from_zmq: the sender {record.name} has not been heard for {seconds} s, after "
                f"{self.tally.senders[record.name]} elements"
            )
            if self.sender_timeout is not None and self.senders is not None:
                raise SourceError(f"{text}; of the senders, {receive_state.describe_senders()}")
            advice = (
                "" if self.timeout else "; timeout=s makes it an error if none does for s seconds"
            )
            _log.warning("%s; others may continue%s", text, advice)

    def _check_failed(self, receive_state: ReceiveState) -> None:
        """Record failed senders; raise an error if the pass cannot end without them."""
        for record in receive_state.records.values():
            if record.stopped is None:
                continue
            text = (
                f"from_zmq: the sender {record.name} failed after "
                f"{self.tally.senders[record.name]} elements: {record.stopped}"
            )
            if self.senders is not None and not record.ended:
                raise SourceError(text)
            if self.senders is None and record.name not in self.tally.stopped:
                _log.warning("%s; others may continue", text)
            self.tally.stopped[record.name] = record.stopped

    def _element_of(self, item: Item) -> Any:
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
    receive_state.owe_all()
    if not link.addresses_peers:
        known = {record.route for record in receive_state.records.values()}
        for route in link.routes():
            if route not in known:
                link.send(route, receive_state.greeting())


def _close_exchange(link: Link, receive_state: ReceiveState) -> None:
    """Tell the senders that all elements have arrived, and wait briefly for their last message."""
    until = monotonic() + LINGER
    while (
        not all(record.closed for record in receive_state.records.values()) and monotonic() < until
    ):
        _answer(link, receive_state)
        if not _listen(link, receive_state):
            _greet(link, receive_state)

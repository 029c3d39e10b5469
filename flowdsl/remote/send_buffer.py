"""The send buffer: a sender's elements, and its reactions to a receiver's messages; no sockets.

An element stays in the buffer until the receiver reports that its consumer took it, so the size of
the buffer limits the elements in flight. If elements are lost with a connection, the receiver
requests the first missing one, and the sender goes back to it. The receiver recognises duplicates
by their number, and discards them.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable

import attrs

from flowdsl.errors import SourceError
from flowdsl.remote.message import (
    NO_RECEIVER,
    Frame,
    Kind,
    MessageHeader,
    Packed,
    Route,
    decode_reason,
    encode_reason,
)


@attrs.define
class SendBuffer:
    """One sender's side of the exchange."""

    hwm: int
    serve: bool
    """True if another receiver may continue after one has disconnected."""
    gone: Callable[[Route], bool]
    """Returns True if a receiver can no longer be reached."""
    me: bytes = attrs.field(factory=lambda: secrets.token_bytes(16))
    receiver: bytes = NO_RECEIVER
    route: Route | None = None
    base: int = 0
    """The number of items that were taken; the end counts as an item."""
    cursor: int = 0
    """The number of the next element to send."""
    attempt: int = 0
    room: int = 0
    """The number of elements, from ``base`` on, that the receiver can store."""
    items: deque[Packed] = attrs.field(factory=deque[Packed])
    """The elements not taken yet, beginning with number ``base``."""
    count: int | None = None
    """The total number of elements, once it is known."""
    deserted: bool = False
    """True if the receiver left after taking all elements so far, and no other may follow."""

    @property
    def full(self) -> bool:
        """True if there is no room for another element."""
        return len(self.items) >= self.hwm

    @property
    def taken(self) -> int:
        """The number of elements that were taken."""
        return self.base if self.count is None else min(self.base, self.count)

    @property
    def finished(self) -> bool:
        """True if all elements and the end were taken."""
        return self.count is not None and self.base > self.count

    def put(self, item: Packed) -> None:
        """Add an element.

        Raises:
            SourceError: The only receiver has left.
        """
        if self.deserted:
            raise self._left_early()
        self.items.append(item)

    def end(self, failure: str | None = None) -> None:
        """Add the end of the elements; ``failure`` is the error of the flow, if it failed."""
        self.count = self.base + len(self.items)
        if self.deserted:
            self.base += 1  # no receiver will take the end, so it counts as taken
        elif failure is None:
            self.items.append(Packed(Kind.END))
        else:
            self.items.append(Packed(Kind.FAILED, (encode_reason(failure),)))

    def due(self) -> list[Frame] | None:
        """Return the next message, if there is one and the receiver has room for it."""
        place = self.cursor - self.base
        if self.route is None or place >= len(self.items) or place >= self.room:
            return None
        item = self.items[place]
        return [self._header(item.kind, self.cursor).encode(), *item.frames]

    def sent(self) -> None:
        """Record that the message from ``due`` was sent."""
        self.cursor += 1

    def hello(self) -> list[Frame]:
        """Create the message with this sender's position."""
        return [self._header(Kind.HELLO, self.base, self.cursor).encode()]

    def done(self) -> list[Frame]:
        """Create the message which says that this sender disconnects."""
        return [self._header(Kind.DONE).encode()]

    def stop(self, reason: str) -> list[Frame]:
        """Create the message which says that this sender failed."""
        return [self._header(Kind.STOP).encode(), encode_reason(reason)]

    def receive(self, route: Route, frames: list[Frame]) -> list[Frame] | None:
        """Process a message, and return the reply, if there is one.

        Raises:
            SourceError: The receiver cannot continue, or left and no other may follow; or the
                message is invalid.
        """
        header = MessageHeader.decode(frames[0])
        if header.kind not in (Kind.WANT, Kind.AGAIN, Kind.LEAVE, Kind.STOP):
            raise SourceError(f"a message of kind {header.kind.name}, which no receiver sends")
        if header.kind is Kind.STOP:
            if header.sender == self.me:
                self._forget()
                raise SourceError(f"the receiver refused: {decode_reason(frames[1:])}")
            return None
        if header.receiver != self.receiver:
            return self._meet(route, header)
        self.route = route
        if header.sender != self.me:
            return self.hello()
        if self.base < header.upto <= self.base + len(self.items):
            for _ in range(header.upto - self.base):
                self.items.popleft()
            self.base = header.upto
            self.cursor = max(self.cursor, self.base)  # it may have gone back too far
        if header.kind is Kind.LEAVE:
            self._left()
            return None
        self.room = header.room
        is_news = header.kind is Kind.AGAIN and header.attempt == self.attempt
        if is_news and self.base <= header.number < self.cursor:
            self.cursor = header.number
            self.attempt += 1
        return None

    def _meet(self, route: Route, header: MessageHeader) -> list[Frame] | None:
        """Accept or refuse a new receiver.

        Raises:
            SourceError: The previous receiver had taken elements, which this one will not get.
        """
        if header.kind is Kind.LEAVE:
            return None
        if self.receiver != NO_RECEIVER and self.route is not None:
            if not self.gone(self.route):
                refusal = (
                    f"the sender serves another receiver, which has taken {self.taken} elements; "
                    f"it takes another only when the first has left, and with serve=True"
                )
                answer = MessageHeader(Kind.REFUSE, self.me, header.receiver)
                return [answer.encode(), encode_reason(refusal)]
            try:
                self._left()  # it was killed, or its last message was lost
            except SourceError:
                self.receiver, self.route = header.receiver, route  # the error is sent to it
                raise
            if self.finished:
                return None
        self.receiver, self.route, self.room = header.receiver, route, header.room
        self.cursor = self.base
        self.attempt += 1
        return self.hello()

    def _left(self) -> None:
        self._forget()
        if self.count is not None and self.base == self.count:
            self.items.clear()
            self.base += 1  # the receiver has all elements, and did not ask for the end
        elif not self.serve and self.base:
            if self.items or self.count is not None:
                raise self._left_early()
            self.deserted = True  # not an error if the flow has no more elements

    def _left_early(self) -> SourceError:
        return SourceError(
            f"the receiver left after it had taken {self.base} elements, before the end; pass "
            f"serve=True to continue with the next receiver"
        )

    def _forget(self) -> None:
        """Forget the receiver, and go back to the first element that was not taken."""
        self.receiver, self.route, self.cursor = NO_RECEIVER, None, self.base

    def _header(self, kind: Kind, number: int = 0, upto: int = 0) -> MessageHeader:
        return MessageHeader(kind, self.me, self.receiver, self.attempt, number, upto)

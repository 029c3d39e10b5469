"""The send buffer: a sender's elements, and its reactions to a receiver's messages; no sockets.

An element stays in the buffer until the receiver acknowledges that it was delivered: its consumer
has asked for the next element, or has committed it. Two limits apply. ``hwm`` limits the elements
that the receiver's flow has not read yet. This flow may have read elements that it has not
delivered, because its operators hold them; these are limited only in bytes, by ``MAX_HELD_BYTES``.
One limit for both would end in a deadlock: a batch of more than ``hwm`` elements would wait for
elements that the sender may not send.

If elements are lost with a connection, the receiver requests the first missing one, and the sender
goes back to it. The receiver recognises duplicates by their number, and discards them.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

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
    encode_name,
    encode_reason,
)
from flowdsl.resources.logs import logger

_log = logger()

MAX_HELD_BYTES: Final = 1 << 30
"""The maximum bytes of the elements that the receiver's flow has read and not delivered."""


@attrs.define
class SendBuffer:
    """One sender's side of the exchange."""

    hwm: int
    serve: bool
    """True if another receiver may continue after one has disconnected."""
    is_gone: Callable[[Route], bool]
    """Returns True if a receiver can no longer be reached."""
    me: bytes = attrs.field(factory=lambda: secrets.token_bytes(16))
    receiver: bytes = NO_RECEIVER
    route: Route | None = None
    name: str = ""
    """The name of this sender in messages and tallies of the receiver."""
    first: int = 0
    """The number of the first element; above 0 if this sender continues from a state."""
    base: int = attrs.field(default=attrs.Factory(lambda self: self.first, takes_self=True))
    """The number of the first item that was not delivered; the end counts as an item."""
    cursor: int = attrs.field(default=attrs.Factory(lambda self: self.first, takes_self=True))
    """The number of the next element to send."""
    attempt: int = 0
    """The number of times this sender went back. Receivers repeat it in ``AGAIN``, so that an old
    request is recognised."""
    room: int = 0
    """The number of elements that the receiver can store after those that its flow holds."""
    held: int = 0
    """The number of elements, from ``base`` on, that the receiver's flow has read."""
    items: deque[Packed] = attrs.field(factory=deque[Packed])
    """The elements not delivered yet, beginning with number ``base``."""
    nbytes: int = 0
    """The bytes of ``items``."""
    count: int | None = None
    """The total number of elements, once it is known."""
    refused: int = 0
    """The number of messages of strangers, which speak another protocol or version; they are
    ignored."""
    refusals: str = ""
    """A description of these messages, to append to an error message."""
    deserted: bool = False
    """True if the receiver left when it had all elements so far, and no other may follow."""
    _warned: bool = attrs.field(default=False, init=False)
    """True if it was logged that half of ``MAX_HELD_BYTES`` is reached."""

    @property
    def full(self) -> bool:
        """True if there is no room for another element."""
        return len(self.items) >= self.hwm + self.held

    @property
    def acknowledged(self) -> int:
        """The number of elements that were delivered."""
        return self.base if self.count is None else min(self.base, self.count)

    @property
    def finished(self) -> bool:
        """True if all elements and the end were delivered."""
        return self.count is not None and self.base > self.count

    def put(self, item: Packed) -> None:
        """Add an element.

        Raises:
            SourceError: The only receiver has left, or its flow holds too many bytes.
        """
        if self.deserted:
            raise self._left_too_early()
        self.items.append(item)
        self.nbytes += item.nbytes
        # elements within ``hwm`` may have any size: the user has limited their number
        if self.nbytes > MAX_HELD_BYTES // 2 and self.held > self.hwm:
            self._warn_or_refuse()

    def _warn_or_refuse(self) -> None:
        text = (
            f"the receiver has read {self.held} elements and delivered none of them to its "
            f"consumer, and this sender keeps at most {MAX_HELD_BYTES / 2**30:g} GiB for it to "
            f"send them again. A buffer of its flow may have kept the first of them: a large "
            f"shuffle, or a key whose window or batch is not complete. "
            f"With auto_commit=False, commit more often"
        )
        if self.nbytes > MAX_HELD_BYTES:
            raise SourceError(text)
        if not self._warned:
            self._warned = True
            _log.warning("send_zmq: half of the limit is reached: %s", text)

    def end(self, failure: str | None = None) -> None:
        """Add the end of the elements; ``failure`` is the error of the flow, if it failed."""
        self.count = self.base + len(self.items)
        if self.deserted:
            self.base += 1  # no receiver will take the end, so it counts as taken
        elif failure is None:
            self.items.append(Packed(Kind.END))
        else:
            self.items.append(Packed(Kind.FAILED, (encode_reason(failure),)))

    def next_message(self) -> list[Frame] | None:
        """Return the next message, if there is one and the receiver has room for it."""
        index = self.cursor - self.base
        if self.route is None or index >= min(len(self.items), self.held + self.room):
            return None
        item = self.items[index]
        return [self._header(item.kind, self.cursor).encode(), *item.frames]

    def mark_sent(self) -> None:
        """Record that the message of ``next_message`` was sent."""
        self.cursor += 1

    def hello(self) -> list[Frame]:
        """Create the message with this sender's position and name."""
        header = self._header(Kind.HELLO, self.base, self.cursor)
        return [header.encode(), encode_name(self.name)]

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
        try:
            header = _header_of_a_receiver(frames[0])
        except SourceError as error:
            # Without a name it is the only peer of its socket, not a stranger: raise the error.
            if not route.peer or route == self.route:
                raise
            return self._refuse_stranger(error)
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
                self.nbytes -= self.items.popleft().nbytes
            self.base = header.upto
            self.cursor = max(self.cursor, self.base)  # it may have gone back too far
        if header.kind is Kind.LEAVE:
            self._receiver_left()
            return None
        self.room = header.room
        self.held = max(0, min(header.upto + header.held - self.base, len(self.items)))
        is_current_request = header.kind is Kind.AGAIN and header.attempt == self.attempt
        if is_current_request and self.base <= header.number < self.cursor:
            self.cursor = header.number
            self.attempt += 1
        return None

    def _refuse_stranger(self, error: SourceError) -> list[Frame]:
        """Count a message of a peer that is not a receiver, which must not end the pass."""
        self.refused += 1
        if self.refused == 1:
            _log.warning(
                "send_zmq: ignored a message of a stranger; further ones are only counted: %s",
                error,
            )
        self.refusals = f"; ignored {self.refused} messages of strangers, the last: {error}"
        header = MessageHeader(Kind.STOP, self.me)
        return [header.encode(), encode_reason(str(error))]

    def _meet(self, route: Route, header: MessageHeader) -> list[Frame] | None:
        """Accept or refuse a new receiver.

        Raises:
            SourceError: The previous receiver got elements, which this one will not get.
        """
        if header.kind is Kind.LEAVE:
            return None
        if self.receiver != NO_RECEIVER and self.route is not None:
            if not self.is_gone(self.route):
                refusal = (
                    f"the sender serves another receiver, which has acknowledged "
                    f"{self.acknowledged} elements; it "
                    f"takes another only when the first has left, and with serve=True"
                )
                answer = MessageHeader(Kind.REFUSE, self.me, header.receiver)
                return [answer.encode(), encode_reason(refusal)]
            try:
                self._receiver_left()  # it was killed, or its last message was lost
            except SourceError:
                self.receiver, self.route = header.receiver, route  # the error is sent to it
                raise
            if self.finished:
                return None
        self.receiver, self.route, self.room = header.receiver, route, header.room
        self.cursor, self.held = self.base, 0
        self.attempt += 1
        return self.hello()

    def _receiver_left(self) -> None:
        """Forget the receiver; raise SourceError if it misses elements and no other may follow."""
        self._forget()
        if self.count is not None and self.base == self.count:
            self.items.clear()
            self.base += 1  # the receiver has all elements: it left before the end was sent
        elif not self.serve and self.base > self.first:
            if self.items or self.count is not None:
                raise self._left_too_early()
            self.deserted = True  # an error only if the flow has more elements
        else:
            _log.info(
                "send_zmq: the receiver left; the next one continues with element %d", self.base
            )

    def _left_too_early(self) -> SourceError:
        return SourceError(
            f"the receiver left after it had acknowledged {self.base} elements, before the "
            f"end; pass serve=True to continue with the next receiver"
        )

    def _forget(self) -> None:
        """Forget the receiver, and go back to the first element that was not delivered."""
        self.receiver, self.route, self.cursor, self.held = NO_RECEIVER, None, self.base, 0

    def _header(self, kind: Kind, number: int = 0, upto: int = 0) -> MessageHeader:
        return MessageHeader(kind, self.me, self.receiver, self.attempt, number, upto)


def _header_of_a_receiver(frame: Frame) -> MessageHeader:
    header = MessageHeader.decode(frame)
    if header.kind not in (Kind.WANT, Kind.AGAIN, Kind.LEAVE, Kind.STOP):
        raise SourceError(f"a message of kind {header.kind.name}, which no receiver sends")
    return header

"""The state of a receiver: its senders, and its reactions to their messages; no sockets."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator
from time import monotonic

import attrs

from flowdsl.errors import SourceError
from flowdsl.remote.message import (
    NO_RECEIVER,
    Frame,
    Kind,
    MessageHeader,
    Route,
    decode_reason,
    encode_reason,
)

Reply = tuple[Route, list[Frame]]
_FROM_SENDERS = frozenset(Kind) - {Kind.WANT, Kind.AGAIN, Kind.LEAVE}


@attrs.define
class Tally:
    """Counters of a receiver, updated during its pass; pass a tally to ``from_zmq``."""

    addresses: dict[str, int] = attrs.field(factory=dict[str, int])
    """Elements delivered to the consumer, by the address at which they arrived."""
    senders: dict[str, int] = attrs.field(factory=dict[str, int])
    """Elements delivered to the consumer, by the random id of each sender."""
    ended: int = 0
    """The number of senders whose elements have all arrived."""
    stopped: dict[str, str] = attrs.field(factory=dict[str, str])
    """The reasons of the senders that failed, by sender."""
    earlier: int = 0
    """Elements that senders had sent to earlier receivers (``serve=True``)."""
    duplicates: int = 0
    """Elements that arrived twice because a connection broke; the second is discarded."""
    unclaimed: int = 0
    """Elements addressed to another receiver, and ignored."""
    refused: int = 0
    """Invalid messages from unknown peers; an error unless ``senders=None``."""


@attrs.define(eq=False)
class Inbox:
    """The receiver's record of one sender."""

    sender: bytes
    route: Route
    expected: int
    """The number of the next element from this sender."""
    taken: int
    """The number of the sender's items delivered to the consumer, including its end."""
    reported: int = -1
    """The value of ``taken`` that was last reported to the sender; -1 before any report."""
    attempt: int = 0
    gap: bool = False
    owed: bool = True
    """True if the sender waits for a reply."""
    ended: bool = False
    closed: bool = False
    """True if the sender confirmed that the receiver has all its elements."""
    stopped: str | None = None
    heard: float = attrs.field(factory=monotonic)

    @property
    def name(self) -> str:
        """The sender's short id in messages and tallies."""
        return self.sender[:4].hex()


@attrs.frozen(eq=False)
class Item:
    """A received element or the end of a sender, as frames."""

    inbox: Inbox
    kind: Kind
    frames: list[Frame]


@attrs.define
class ReceiveState:
    """One receiver's side of the exchange."""

    senders: int | None
    """The number of senders that the receiver accepts; None for any number."""
    hwm: int
    tally: Tally
    me: bytes = attrs.field(factory=lambda: secrets.token_bytes(16))
    inboxes: dict[bytes, Inbox] = attrs.field(factory=dict[bytes, Inbox])
    ready: deque[Item] = attrs.field(factory=deque[Item])
    """Received items that the consumer has not taken, in the order of arrival."""
    _strangers: dict[Route, list[Frame]] = attrs.field(factory=dict[Route, list[Frame]])

    @property
    def ended(self) -> bool:
        """True if all senders have ended and all their elements were delivered."""
        ended = sum(inbox.ended for inbox in self.inboxes.values())
        return self.senders is not None and ended >= self.senders

    def receive(self, route: Route, frames: list[Frame]) -> None:
        """Process a message; the next element or end of its sender is added to ``ready``.

        Raises:
            SourceError: The message is invalid, or its sender cannot continue with this receiver.
        """
        try:
            header = _header_of_a_sender(frames[0])
        except SourceError:
            if self.senders is None and all(box.route != route for box in self.inboxes.values()):
                self.tally.refused += 1  # an unknown peer must not end the pass of the others
                return
            raise
        inbox = self.inboxes.get(header.sender)
        if header.receiver != self.me or (inbox is None and header.kind is not Kind.HELLO):
            if header.receiver == self.me and header.kind in (Kind.REFUSE, Kind.STOP):
                self._turned_away(header, decode_reason(frames[1:]))
            else:
                self._greet(route, header, inbox)
            return
        if inbox is None:
            inbox = self._admit(route, header)
            if inbox is None:
                return
        inbox.route, inbox.heard = route, monotonic()
        if header.kind is Kind.DONE:
            inbox.closed = True
        elif header.kind in (Kind.STOP, Kind.REFUSE):
            inbox.stopped = decode_reason(frames[1:])
        else:
            self._count(inbox, header, frames)

    def hand_on(self) -> Item:
        """Remove and return the first ready item, and count it as taken."""
        item = self.ready.popleft()
        inbox, tally = item.inbox, self.tally
        inbox.taken += 1
        if item.kind is Kind.END:
            inbox.ended = inbox.owed = True
            tally.ended += 1
        elif item.kind is Kind.FAILED:
            inbox.stopped, inbox.owed = decode_reason(item.frames), True
        else:
            tally.senders[inbox.name] += 1
            inbox.owed |= inbox.taken - inbox.reported >= max(1, self.hwm // 4)
        return item

    def replies(self, all_of_them: bool = True) -> Iterator[Reply]:
        """Yield the messages to senders that wait for a reply, or whose count has changed."""
        yield from self._strangers.items()
        self._strangers.clear()
        for inbox in self.inboxes.values():
            if inbox.owed or (all_of_them and inbox.taken != inbox.reported):
                kind = Kind.AGAIN if inbox.gap else Kind.WANT
                inbox.reported, inbox.owed, inbox.gap = inbox.taken, False, False
                yield inbox.route, self._message(kind, inbox)

    def farewells(self, culprit: Inbox | None = None, reason: str = "") -> Iterator[Reply]:
        """Yield the last messages to the senders; ``culprit`` is the sender that caused the end."""
        for inbox in self.inboxes.values():
            if inbox is culprit:
                header = MessageHeader(Kind.STOP, inbox.sender, self.me)
                yield inbox.route, [header.encode(), encode_reason(reason)]
            elif not inbox.closed and inbox.stopped is None:
                yield inbox.route, self._message(Kind.LEAVE, inbox)

    def greeting(self) -> list[Frame]:
        """Create the message that announces this receiver to a sender."""
        return [MessageHeader(Kind.WANT, NO_RECEIVER, self.me, room=self.hwm).encode()]

    def describe_senders(self) -> str:
        """Describe the state of each sender, for an error message."""
        now = monotonic()
        senders = [
            f"{inbox.name}: {self.tally.senders[inbox.name]} elements, "
            + (
                "and the end"
                if inbox.ended
                else f"no end, last heard {now - inbox.heard:.1f} s ago"
            )
            for inbox in self.inboxes.values()
        ]
        return "; ".join(senders) or "none has been heard"

    def _count(self, inbox: Inbox, header: MessageHeader, frames: list[Frame]) -> None:
        inbox.attempt = max(inbox.attempt, header.attempt)
        if header.kind is Kind.HELLO:
            inbox.gap |= header.upto > inbox.expected
            inbox.owed = True
        elif header.number > inbox.expected:
            inbox.gap = inbox.owed = True
        elif header.number < inbox.expected:
            self.tally.duplicates += header.kind in (Kind.ELEMENT, Kind.PICKLED)
        else:
            inbox.expected += 1
            self.ready.append(Item(inbox, header.kind, frames[1:]))

    def _turned_away(self, header: MessageHeader, reason: str) -> None:
        """Handle the message of a sender that was not admitted and rejects this receiver.

        Raises:
            SourceError: The sender serves another receiver, or failed while it was awaited.
        """
        if header.kind is Kind.REFUSE:
            raise SourceError(reason)
        name = header.sender[:4].hex()
        if self.senders is None:
            self.tally.stopped[name] = reason
        elif len(self.inboxes) < self.senders:
            raise SourceError(f"the sender {name} failed: {reason}")

    def _greet(self, route: Route, header: MessageHeader, inbox: Inbox | None) -> None:
        """Announce this receiver to a sender that has another receiver or none."""
        if header.kind in (Kind.DONE, Kind.STOP, Kind.REFUSE):
            return
        self.tally.unclaimed += header.kind is not Kind.HELLO
        if inbox is not None:
            inbox.route, inbox.owed = route, True
        else:
            want = MessageHeader(Kind.WANT, header.sender, self.me, room=self.hwm)
            self._strangers[route] = [want.encode()]

    def _admit(self, route: Route, header: MessageHeader) -> Inbox | None:
        """Add a new sender, or refuse it if ``senders`` have been admitted."""
        if self.senders is not None and len(self.inboxes) >= self.senders:
            reason = (
                f"it takes {self.senders} sender{'s' if self.senders > 1 else ''} and already has "
                f"{', '.join(inbox.name for inbox in self.inboxes.values())}; its from_zmq needs "
                f"senders=n for more"
            )
            refusal = MessageHeader(Kind.STOP, header.sender, self.me)
            self._strangers[route] = [refusal.encode(), encode_reason(reason)]
            return None
        inbox = Inbox(header.sender, route, header.number, header.number)
        self.inboxes[header.sender] = inbox
        self.tally.senders[inbox.name] = 0
        self.tally.earlier += header.number
        return inbox

    def _message(self, kind: Kind, inbox: Inbox) -> list[Frame]:
        header = MessageHeader(
            kind, inbox.sender, self.me, inbox.attempt, inbox.expected, inbox.taken, self.hwm
        )
        return [header.encode()]


def _header_of_a_sender(frame: Frame) -> MessageHeader:
    header = MessageHeader.decode(frame)
    if header.kind not in _FROM_SENDERS:
        raise SourceError(f"a message of kind {header.kind.name}, which no sender sends")
    return header

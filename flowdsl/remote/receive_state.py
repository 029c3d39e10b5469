"""What a receiver knows of its senders, and how it acts on their messages; no sockets."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator
from time import monotonic

import attrs

from flowdsl.errors import SourceError
from flowdsl.remote.message import (
    NOBODY,
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
    """Counters of a receiver, kept up to date during its pass: give one to ``from_zmq``."""

    addresses: dict[str, int] = attrs.field(factory=dict[str, int])
    """Elements handed to the consumer, by the address at which they arrived."""
    senders: dict[str, int] = attrs.field(factory=dict[str, int])
    """Elements handed to the consumer, by the id that each sender draws when it begins."""
    ended: int = 0
    """The number of senders whose elements all arrived."""
    stopped: dict[str, str] = attrs.field(factory=dict[str, str])
    """The reasons of the senders that failed, by sender."""
    earlier: int = 0
    """Elements that senders had given to other receivers before (``serve=True``)."""
    duplicates: int = 0
    """Elements that arrived twice because a connection was cut; the second is discarded."""
    unclaimed: int = 0
    """Elements addressed to another receiver, and left to their sender."""
    refused: int = 0
    """Invalid messages from unknown peers; an error unless ``senders=None``."""


@attrs.define(eq=False)
class Inbox:
    """One sender, as the receiver sees it."""

    sender: bytes
    route: Route
    expected: int
    """The number of the next element from this sender."""
    taken: int
    """How many of the sender's elements were handed to a consumer, its end included."""
    told: int = -1
    """The value of ``taken`` that was last reported to the sender; -1 before any report."""
    attempt: int = 0
    gap: bool = False
    owed: bool = True
    """Whether the sender waits for an answer."""
    ended: bool = False
    closed: bool = False
    """Whether the sender confirmed that the receiver has all its elements."""
    stopped: str | None = None
    heard: float = attrs.field(factory=monotonic)

    @property
    def name(self) -> str:
        """The sender's short id in messages and tallies."""
        return self.sender[:4].hex()


@attrs.frozen(eq=False)
class Item:
    """A received element, or a sender's end, as frames."""

    inbox: Inbox
    kind: Kind
    frames: list[Frame]


@attrs.define
class ReceiveState:
    """One receiver's side of the exchange."""

    senders: int | None
    """How many senders the receiver takes; None for any number."""
    hwm: int
    tally: Tally
    me: bytes = attrs.field(factory=lambda: secrets.token_bytes(16))
    inboxes: dict[bytes, Inbox] = attrs.field(factory=dict[bytes, Inbox])
    ready: deque[Item] = attrs.field(factory=deque[Item])
    """Received items that the consumer has not taken, in the order of arrival."""
    _strangers: dict[Route, list[Frame]] = attrs.field(factory=dict[Route, list[Frame]])

    @property
    def ended(self) -> bool:
        """Whether all senders have ended, and all their elements were handed on."""
        ended = sum(inbox.ended for inbox in self.inboxes.values())
        return self.senders is not None and ended >= self.senders

    def receive(self, route: Route, frames: list[Frame]) -> None:
        """Act on a message; the next element or end of its sender is added to ``ready``.

        Raises:
            SourceError: It is no message of a sender, or a sender cannot go on with this receiver.
        """
        try:
            header = _header_of_a_sender(frames[0])
        except SourceError:
            if self.senders is None and all(box.route != route for box in self.inboxes.values()):
                self.tally.refused += 1  # a passing stranger must not end the pass of the others
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
            inbox.owed |= inbox.taken - inbox.told >= max(1, self.hwm // 4)
        return item

    def replies(self, all_of_them: bool = True) -> Iterator[Reply]:
        """The messages to senders that wait for an answer, or to all whose count changed."""
        yield from self._strangers.items()
        self._strangers.clear()
        for inbox in self.inboxes.values():
            if inbox.owed or (all_of_them and inbox.taken != inbox.told):
                kind = Kind.AGAIN if inbox.gap else Kind.WANT
                inbox.told, inbox.owed, inbox.gap = inbox.taken, False, False
                yield inbox.route, self._said(kind, inbox)

    def farewells(self, culprit: Inbox | None = None, reason: str = "") -> Iterator[Reply]:
        """The last messages to the senders; ``culprit`` is the sender that caused the end."""
        for inbox in self.inboxes.values():
            if inbox is culprit:
                header = MessageHeader(Kind.STOP, inbox.sender, self.me)
                yield inbox.route, [header.encode(), encode_reason(reason)]
            elif not inbox.closed and inbox.stopped is None:
                yield inbox.route, self._said(Kind.LEAVE, inbox)

    def greeting(self) -> list[Frame]:
        """The message that announces this receiver to a sender."""
        return [MessageHeader(Kind.WANT, NOBODY, self.me, room=self.hwm).encode()]

    def whereabouts(self) -> str:
        """The state of each sender, for an error message."""
        now = monotonic()
        told = [
            f"{inbox.name}: {self.tally.senders[inbox.name]} elements, "
            + (
                "and the end"
                if inbox.ended
                else f"no end, last heard {now - inbox.heard:.1f} s ago"
            )
            for inbox in self.inboxes.values()
        ]
        return "; ".join(told) or "none has been heard"

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
        """A sender that was not admitted takes no receiver, or not this one.

        Raises:
            SourceError: It serves another; or it fails, and is one of those that are waited for.
        """
        if header.kind is Kind.REFUSE:
            raise SourceError(reason)
        name = header.sender[:4].hex()
        if self.senders is None:
            self.tally.stopped[name] = reason
        elif len(self.inboxes) < self.senders:
            raise SourceError(f"the sender {name} failed: {reason}")

    def _greet(self, route: Route, header: MessageHeader, inbox: Inbox | None) -> None:
        """Announce this receiver to a sender that has another receiver, or none yet."""
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
            told = (
                f"it takes {self.senders} sender{'s' if self.senders > 1 else ''} and already has "
                f"{', '.join(inbox.name for inbox in self.inboxes.values())}; give its from_zmq "
                f"senders=n for more"
            )
            refusal = MessageHeader(Kind.STOP, header.sender, self.me)
            self._strangers[route] = [refusal.encode(), encode_reason(told)]
            return None
        inbox = Inbox(header.sender, route, header.number, header.number)
        self.inboxes[header.sender] = inbox
        self.tally.senders[inbox.name] = 0
        self.tally.earlier += header.number
        return inbox

    def _said(self, kind: Kind, inbox: Inbox) -> list[Frame]:
        header = MessageHeader(
            kind, inbox.sender, self.me, inbox.attempt, inbox.expected, inbox.taken, self.hwm
        )
        return [header.encode()]


def _header_of_a_sender(frame: Frame) -> MessageHeader:
    header = MessageHeader.decode(frame)
    if header.kind not in _FROM_SENDERS:
        raise SourceError(f"a message of kind {header.kind.name}, which no sender sends")
    return header

"""The state of a receiver: its senders, and its reactions to their messages; no sockets."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterator
from time import monotonic

import attrs

from flowdsl.errors import SourceError
from flowdsl.nodes import Offsets
from flowdsl.remote.message import (
    NO_RECEIVER,
    Frame,
    Kind,
    MessageHeader,
    Route,
    decode_name,
    decode_reason,
    encode_reason,
)
from flowdsl.resources.logs import logger

_log = logger()

Reply = tuple[Route, list[Frame]]
_MOST_PARTITIONS = 32
"""If there are more senders, several share a partition: its rows are acknowledged in order."""
_FROM_SENDERS = frozenset(Kind) - {Kind.WANT, Kind.AGAIN, Kind.LEAVE}


@attrs.define
class Tally:
    """Counters of a receiver, updated during its pass; pass a tally to ``from_zmq``."""

    addresses: dict[str, int] = attrs.field(factory=dict[str, int])
    """Elements yielded to the flow above, by the address at which they arrived."""
    senders: dict[str, int] = attrs.field(factory=dict[str, int])
    """Elements yielded to the flow above, by the name of each sender: ``lidar (id)`` if it has said
    a name, else ``host:pid (id)``."""
    acknowledged: dict[str, int] = attrs.field(factory=dict[str, int])
    """Elements that were delivered, by sender; a sender does not send these to another receiver."""
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
    """Messages of strangers, which speak another protocol or version; they are ignored."""
    damaged: int = 0
    """Messages whose bytes changed on the way; they are sent again."""
    _heard: dict[str, float] = attrs.field(factory=dict[str, float], init=False, repr=False)

    @property
    def ages(self) -> dict[str, float]:
        """The seconds since each sender was last heard, for the senders that have not ended.

        A sender that waits says so several times a second. While it computes an element, it is
        silent.
        """
        now = monotonic()
        return {name: now - heard for name, heard in [*self._heard.items()]}

    def hear(self, sender: str) -> None:
        """Record that a message of a sender has arrived."""
        self._heard[sender] = monotonic()

    def forget(self, sender: str) -> None:
        """Record that no more messages of a sender are expected."""
        self._heard.pop(sender, None)


@attrs.define(eq=False)
class SenderRecord:
    """The receiver's record of one sender."""

    sender: bytes
    route: Route
    expected: int
    """The number of the next element from this sender."""
    taken: int
    """The number of the sender's items that the flow above has read, including its end."""
    delivered: int
    """The number of its items that were delivered to the consumer."""
    partition: int = 0
    """The receiver's partition that its elements belong to."""
    said: str = ""
    """The name by which the sender introduced itself."""
    reported: tuple[int, int] = (-1, -1)
    """The numbers of items delivered and taken that were last reported; -1 before any report."""
    attempt: int = 0
    """The ``attempt`` of the sender's latest message."""
    gap: bool = False
    """True if an element is missing before one that has arrived."""
    owed: bool = True
    """True if a reply to the sender is due."""
    has_end: bool = False
    """True if the last item was taken: the sender has ended, or its flow has failed."""
    ended: bool = False
    """True if the flow of the sender has ended, and all its elements were taken."""
    closed: bool = False
    """True if the sender confirmed that the receiver has all its elements."""
    refused: bool = False
    """True if its messages were malformed, so that no more of them are read."""
    stopped: str | None = None
    """The reason why the sender cannot continue; None if it can."""
    heard: float = attrs.field(factory=monotonic)
    silent: bool = False
    """True if the silence of the sender was reported."""

    @property
    def name(self) -> str:
        """The sender's name and short id in messages and tallies."""
        return _named(self.sender, self.said)

    @property
    def needs_partition(self) -> bool:
        """True if elements of the sender may come, or were taken and are not delivered."""
        is_over = self.has_end or self.stopped is not None
        return not is_over or self.delivered < self.taken


@attrs.frozen(eq=False)
class Item:
    """A received element or the end of a sender, as frames."""

    record: SenderRecord
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
    records: dict[bytes, SenderRecord] = attrs.field(factory=dict[bytes, SenderRecord])
    ready: deque[Item] = attrs.field(factory=deque[Item])
    """Received items that the consumer has not taken, in the order of arrival."""
    refusals: str = ""
    """The messages of strangers, to append to an error message."""
    _order: list[deque[SenderRecord]] = attrs.field(
        factory=lambda: [deque[SenderRecord]() for _ in range(_MOST_PARTITIONS)]
    )
    """In each partition, the sender of each element that was taken and not delivered, in the order
    of taking."""
    _acknowledged: list[int] = attrs.field(factory=lambda: [0] * _MOST_PARTITIONS)
    """The number of elements in each partition that were delivered."""
    _replies_to_others: dict[Route, list[Frame]] = attrs.field(factory=dict[Route, list[Frame]])
    """Replies to senders that this receiver has not admitted."""

    @property
    def ended(self) -> bool:
        """True if all senders have ended and all their elements were taken."""
        ended = sum(record.ended for record in self.records.values())
        return self.senders is not None and ended >= self.senders

    @property
    def all_delivered(self) -> bool:
        """True if all elements that were taken were delivered."""
        return not any(self._order)

    def receive(self, route: Route, frames: list[Frame]) -> None:
        """Process a message; the next element or end of its sender is added to ``ready``.

        Raises:
            SourceError: The message is invalid, or its sender cannot continue with this receiver.
        """
        try:
            header = _header_of_a_sender(frames[0])
        except SourceError as error:
            known = next((r for r in self.records.values() if r.route == route), None)
            if known is not None:
                self.refuse(known, str(error))
            elif not route.peer:  # the only peer of its socket, at an address that the user passed
                raise
            else:
                self._refuse_stranger(route, frames, error)
            return
        record = self.records.get(header.sender)
        if record is not None and record.refused:
            return
        if header.receiver != self.me or (record is None and header.kind is not Kind.HELLO):
            if header.receiver == self.me and header.kind in (Kind.REFUSE, Kind.STOP):
                self._turned_away(header, decode_reason(frames[1:]))
            else:
                self._greet(route, header, record)
            return
        if record is None:
            record = self._admit(route, header, decode_name(frames[1:]))
            if record is None:
                return
        record.route, record.heard = route, monotonic()
        if record.silent:
            record.silent = False
            _log.warning("from_zmq: the sender %s is heard again", record.name)
        if not record.has_end:
            self.tally.hear(record.name)
        if header.kind is Kind.DONE:
            record.closed = True
        elif header.kind in (Kind.STOP, Kind.REFUSE):
            record.stopped = decode_reason(frames[1:])
        else:
            self._accept(record, header, frames)

    def take(self) -> Item:
        """Remove and return the first ready item, and count it as taken."""
        item = self.ready.popleft()
        if item.kind in (Kind.ELEMENT, Kind.PICKLED):
            self._order[item.record.partition].append(item.record)
        record, tally = item.record, self.tally
        record.taken += 1
        if item.kind in (Kind.END, Kind.FAILED):
            record.has_end = record.owed = True
            tally.forget(record.name)
            if item.kind is Kind.END:
                record.ended = True
                tally.ended += 1
            else:
                record.stopped = decode_reason(item.frames)
            _acknowledge_end(record)
        else:
            tally.senders[record.name] += 1
            record.owed |= record.taken - record.reported[1] >= max(1, self.hwm // 4)
        return item

    def acknowledge(self, delivered: Offsets) -> None:
        """Record how many of the elements that were taken of each partition are delivered.

        The end of a sender is delivered with its last element.
        """
        for partition, upto in enumerate(delivered):
            before = self._acknowledged[partition]
            for _ in range(upto - before):
                record = self._order[partition].popleft()
                record.delivered += 1
                self.tally.acknowledged[record.name] += 1
                _acknowledge_end(record)
            self._acknowledged[partition] = max(before, upto)

    def refuse_last(self, item: Item, reason: str) -> None:
        """Refuse the sender of the last item that was taken, which is malformed."""
        self._order[item.record.partition].pop()
        self.tally.senders[item.record.name] -= 1
        self.refuse(item.record, reason)

    def refuse(self, record: SenderRecord, reason: str) -> None:
        """Ignore all further messages of a sender, as one was malformed.

        Raises:
            SourceError: The pass cannot end without this sender.
        """
        if self.senders is not None:
            raise SourceError(f"the sender {record.name}: {reason}")
        record.refused, record.stopped = True, reason
        self.tally.forget(record.name)
        self.tally.stopped[record.name] = reason
        self.ready = deque(item for item in self.ready if item.record is not record)
        self._replies_to_others[record.route] = self._refusal(record.sender, reason)
        _log.warning("from_zmq: refused the sender %s, others continue: %s", record.name, reason)

    def _refuse_stranger(self, route: Route, frames: list[Frame], error: SourceError) -> None:
        """Count a message of a peer that is not a sender, which must not end the pass of others."""
        self.tally.refused += 1
        if self.tally.refused == 1:
            _log.warning(
                "from_zmq: ignored a message of a stranger; further ones are only counted: %s",
                error,
            )
        self.refusals = f"; ignored {self.tally.refused} messages of strangers, the last: {error}"
        self._replies_to_others[route] = self._refusal(bytes(16), str(error))

    def _refusal(self, sender: bytes, reason: str) -> list[Frame]:
        header = MessageHeader(Kind.STOP, sender, self.me)
        return [header.encode(), encode_reason(reason)]

    def newly_silent(self, seconds: float, since: float) -> Iterator[SenderRecord]:
        """Yield the senders that have been silent for longer than this, each once.

        The silence of a sender begins at ``since`` or later: before, this end did not listen.
        """
        now = monotonic()
        for record in self.records.values():
            expected = not (record.has_end or record.refused or record.silent)
            if expected and now - max(record.heard, since) > seconds:
                record.silent = True
                yield record

    def owe_all(self) -> None:
        """Let ``replies`` yield a message with this receiver's position for each known sender."""
        for record in self.records.values():
            record.owed |= not record.closed

    def replies(self, all_of_them: bool = True) -> Iterator[Reply]:
        """Yield the messages to senders to which a reply is due.

        With ``all_of_them``, also report to each sender what was taken and delivered since the last
        report.
        """
        yield from self._replies_to_others.items()
        self._replies_to_others.clear()
        for record in self.records.values():
            if record.refused:
                continue
            counts = record.delivered, record.taken
            if record.owed or (all_of_them and counts != record.reported):
                kind = Kind.AGAIN if record.gap else Kind.WANT
                record.reported, record.owed, record.gap = counts, False, False
                yield record.route, self._message(kind, record)

    def farewells(self, culprit: SenderRecord | None = None, reason: str = "") -> Iterator[Reply]:
        """Yield the last messages to the senders; ``culprit`` is the sender that caused the end."""
        for record in self.records.values():
            if record is culprit:
                yield record.route, self._refusal(record.sender, reason)
            elif not record.closed and record.stopped is None:
                yield record.route, self._message(Kind.LEAVE, record)

    def greeting(self) -> list[Frame]:
        """Create the message that announces this receiver to a sender."""
        return [MessageHeader(Kind.WANT, NO_RECEIVER, self.me, room=self.hwm).encode()]

    def describe_senders(self) -> str:
        """Describe the state of each sender, for an error message."""
        now = monotonic()
        senders = [
            f"{record.name}: {self.tally.senders[record.name]} elements, "
            + (
                "and the end"
                if record.ended
                else f"no end, last heard {now - record.heard:.1f} s ago"
            )
            for record in self.records.values()
        ]
        return "; ".join(senders) or "none has been heard"

    def describe_delivered(self) -> str:
        """Describe where the elements of each sender went."""
        read, delivered = self.tally.senders, self.tally.acknowledged
        return "; ".join(
            f"of the sender {name}, {delivered[name]} elements were delivered, and the "
            f"{read[name] - delivered[name]} more that had been read ahead stay with the sender"
            for name in (record.name for record in self.records.values())
        )

    def describe_held(self) -> str:
        """Describe which senders wait until elements are delivered that the flow above holds."""
        held = Counter(record.name for taken in self._order for record in taken)
        holds = ", ".join(f"{n} of {name}" for name, n in held.items())
        if not holds:
            return ""
        return (
            f"; the flow above holds elements, in a buffer or an incomplete batch: {holds}; a "
            f"sender ends when all its elements are delivered, so no other may wait for its end"
        )

    def _accept(self, record: SenderRecord, header: MessageHeader, frames: list[Frame]) -> None:
        """Accept the next item of a sender; record if items are missing, or repeated."""
        record.attempt = max(record.attempt, header.attempt)
        if header.kind is Kind.HELLO:
            record.attempt = header.attempt  # a sender that was started again counts from 0
            record.gap |= header.upto > record.expected
            record.owed = True
        elif header.number > record.expected:
            record.gap = record.owed = True
        elif header.number < record.expected:
            self.tally.duplicates += header.kind in (Kind.ELEMENT, Kind.PICKLED)
        else:
            record.expected += 1
            self.ready.append(Item(record, header.kind, frames[1:]))

    def _turned_away(self, header: MessageHeader, reason: str) -> None:
        """Handle the message of a sender that was not admitted and rejects this receiver.

        Raises:
            SourceError: The sender serves another receiver, or failed before it was admitted.
        """
        if header.kind is Kind.REFUSE:
            raise SourceError(reason)
        name = _named(header.sender)
        if self.senders is None:
            self.tally.stopped[name] = reason
        elif len(self.records) < self.senders:
            raise SourceError(f"the sender {name} failed: {reason}")

    def _greet(self, route: Route, header: MessageHeader, record: SenderRecord | None) -> None:
        """Announce this receiver to a sender that has another receiver or none."""
        if header.kind in (Kind.DONE, Kind.STOP, Kind.REFUSE):
            return
        self.tally.unclaimed += header.kind is not Kind.HELLO
        if record is not None:
            record.route, record.owed = route, True
        else:
            want = MessageHeader(Kind.WANT, header.sender, self.me, room=self.hwm)
            self._replies_to_others[route] = [want.encode()]

    def _admit(self, route: Route, header: MessageHeader, said: str) -> SenderRecord | None:
        """Add a new sender; refuse it if there are ``senders`` already."""
        if self.senders is not None and len(self.records) >= self.senders:
            reason = (
                f"it takes {self.senders} sender{'s' if self.senders > 1 else ''} and already has "
                f"{', '.join(record.name for record in self.records.values())}; its from_zmq needs "
                f"senders=n for more"
            )
            self._replies_to_others[route] = self._refusal(header.sender, reason)
            return None
        record = SenderRecord(
            header.sender,
            route,
            expected=header.number,
            taken=header.number,
            delivered=header.number,
            partition=self._free_partition(),
            said=said,
        )
        self.records[header.sender] = record
        self.tally.senders[record.name] = self.tally.acknowledged[record.name] = 0
        self.tally.earlier += header.number
        return record

    def _free_partition(self) -> int:
        """Return the partition with the fewest senders that need it."""
        needed = Counter(r.partition for r in self.records.values() if r.needs_partition)
        return min(range(len(self._order)), key=lambda partition: needed[partition])

    def _message(self, kind: Kind, record: SenderRecord) -> list[Frame]:
        header = MessageHeader(
            kind,
            record.sender,
            self.me,
            attempt=record.attempt,
            number=record.expected,
            upto=record.delivered,
            room=self.hwm,
            held=record.taken - record.delivered,
        )
        return [header.encode()]


def _named(sender: bytes, said: str = "") -> str:
    """Return the name of a sender; its id distinguishes senders of one process.

    >>> _named(bytes(16), "host:4711")
    'host:4711 (00000000)'
    """
    short = sender[:4].hex()
    return f"{said} ({short})" if said else short


def _acknowledge_end(record: SenderRecord) -> None:
    """Count the end of a sender as delivered once all its elements are."""
    if record.has_end and record.delivered == record.taken - 1:
        record.delivered, record.owed = record.taken, True


def _header_of_a_sender(frame: Frame) -> MessageHeader:
    header = MessageHeader.decode(frame)
    if header.kind not in _FROM_SENDERS:
        raise SourceError(f"a message of kind {header.kind.name}, which no sender sends")
    return header

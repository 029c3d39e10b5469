"""One pass of a sender, from the first element of a flow to its end."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from math import inf
from socket import gethostname
from time import monotonic
from typing import Any, Final, Protocol

import attrs
import zmq

from flowdsl.elements.specs import spec_of
from flowdsl.errors import SourceError, StateMismatch
from flowdsl.remote.message import Frame, Packed, Route, pack, pack_numbered, pack_trusted
from flowdsl.remote.send_buffer import SendBuffer
from flowdsl.remote.sockets import BEAT, LINGER, LINGER_OF_ERRORS, Endpoint, Link
from flowdsl.storage.codec import SameTupleNames


class Resumed(Protocol):
    """A run of a flow, as a sender uses it."""

    @property
    def position(self) -> int:
        """The number of elements of the pass delivered so far, including before a resume."""
        ...

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Return the state of the pass after ``position`` elements."""
        ...

    def mark(self, since: int | None = None) -> None:
        """Record a resume point, for states from position ``since`` on."""
        ...


@attrs.define
class Progress:
    """Reports the state after the elements that were acknowledged, for a sender that continues."""

    run: Resumed
    on_state: Callable[[dict[str, Any]], object]
    sender: bytes
    """The id of this sender, which it keeps when it is started again."""
    reported: int = -1
    """The number of acknowledged elements that was last reported."""
    reported_at: float = -inf
    """The time of the last report."""

    def __attrs_post_init__(self) -> None:
        self.report(self.run.position, monotonic())

    def mark(self, number: int) -> None:
        """Record that element ``number`` is about to be computed."""
        if number % _MARK_INTERVAL == 0:
            self.run.mark(self.reported)

    def report(self, acknowledged: int, now: float = inf) -> None:
        """Report the state if it has changed, and if the last report was long enough ago."""
        if acknowledged > self.reported and now - self.reported_at >= _SECONDS_BETWEEN_STATES:
            self.reported, self.reported_at = acknowledged, now
            self.on_state({**self.run.state_dict(acknowledged), KEY_OF_SENDER: self.sender.hex()})


def sender_of(state: Mapping[str, object]) -> bytes:
    """Return the id of the sender that the state is from; a new id if the state has none.

    Raises:
        StateMismatch: The value under ``sender`` is not 32 hexadecimal digits.
    """
    text = state.get(KEY_OF_SENDER)
    if text is None:
        return secrets.token_bytes(_ID_BYTES)
    try:
        sender = bytes.fromhex(str(text))
    except ValueError:
        sender = b""
    if len(sender) != _ID_BYTES:
        raise StateMismatch(
            f"send_zmq: state has {KEY_OF_SENDER}={text!r}, which is not the id of a sender; pass "
            f"a state as on_state got it"
        )
    return sender


@attrs.define
class _Connection:
    """The sockets of a sender with its send buffer."""

    at: str
    """The operator and the address, for error messages."""
    link: Link
    buffer: SendBuffer
    timeout: float | None
    progress: Progress | None = None
    """Reports the state of the sender; None without ``on_state``."""
    listened: float = 0.0
    """The time of the last look for messages."""
    announced: float = 0.0
    """The time when this sender last announced its position."""

    def until(self, done: Callable[[], bool], limit: float = inf) -> None:
        """Send and listen until ``done()`` is True, or for ``limit`` seconds.

        Raises:
            SourceError: The receiver cannot continue; or for too long it has not taken or
                acknowledged an element, nor reported that its flow holds some.
        """
        buffer, link, began = self.buffer, self.link, monotonic()
        since = began
        while True:
            self._transmit()
            now = monotonic()
            half_empty = 2 * (len(buffer.items) - buffer.held) <= buffer.hwm
            may_skip_listening = buffer.route is not None and half_empty
            if done() and may_skip_listening and now - self.listened < _LISTEN_INTERVAL:
                return  # listening after each element would cost more than sending it
            self.listened = now
            messages = link.receive(0 if done() else BEAT)
            progress_before = buffer.base + buffer.held, buffer.receiver
            for route, frames in messages:
                self._process(route, frames)
            holds_some = buffer.held > 0 and any(route == buffer.route for route, _ in messages)
            if self.progress is not None:
                self.progress.report(buffer.acknowledged, now)
            self._transmit()
            if not messages and now - self.announced > BEAT:
                self._announce()
                self.announced = now
            if done() or now - began > limit:
                return
            if holds_some or progress_before != (buffer.base + buffer.held, buffer.receiver):
                since = now
            elif self.timeout is not None and now - since > self.timeout:
                raise self._timed_out()

    def put(self, item: Packed) -> None:
        """Send an element as soon as there is room for it."""
        with self._naming_address():
            self.buffer.put(item)
        self.until(lambda: not self.buffer.full)

    def fail(self, error: Exception) -> None:
        """Report the failure of the flow to the receiver, in place of the next element."""
        self.buffer.end(_reason(error))
        self.until(lambda: self.buffer.finished, limit=_SECONDS_TO_REPORT)

    def _transmit(self) -> None:
        buffer = self.buffer
        while (frames := buffer.next_message()) is not None:
            assert buffer.route is not None
            if not self.link.send(buffer.route, frames):
                return
            buffer.mark_sent()

    def _process(self, route: Route, frames: list[Frame]) -> None:
        with self._naming_address():
            answer = self.buffer.receive(route, frames)
        if answer is not None:
            self.link.send(route, answer)

    @contextmanager
    def _naming_address(self) -> Iterator[None]:
        """Prefix errors with the operator and the address."""
        try:
            yield
        except SourceError as error:
            raise SourceError(f"{self.at}: {error}") from error

    def _announce(self) -> None:
        if self.buffer.route is not None:
            self.link.send(self.buffer.route, self.buffer.hello())
        elif not self.link.addresses_peers:
            self.link.send(_ONLY_PEER, self.buffer.hello())

    def _timed_out(self) -> SourceError:
        buffer = self.buffer
        what = "no receiver was there" if buffer.route is None else "the receiver took nothing"
        return SourceError(
            f"{self.at}: after {buffer.acknowledged} acknowledged elements, {what} for "
            f"{self.timeout} s; is fl.from_zmq "
            f"running at the other end, with a key that is known here?"
            f"{self.link.refusals}{buffer.refusals}"
        )


KEY_OF_SENDER: Final = "sender"
"""The key of the sender's id in its states."""
_ID_BYTES: Final = 16
_LISTEN_INTERVAL: Final = 0.01
_SECONDS_BETWEEN_STATES: Final = 0.1
_MARK_INTERVAL: Final = 16
"""Elements between two resume points: above a filter, a resume computes at most this many again."""
_SECONDS_TO_REPORT: Final = 2.0
"""Seconds to wait until the receiver knows that the flow failed."""
_ONLY_PEER = Route(socket=0, peer=b"")
"""The route to the peer of a connecting socket, even if it has not answered yet."""


def send(
    endpoint: Endpoint,
    elements: Iterator[object],
    trusted: bool,
    serve: bool,
    timeout: float | None,
    start: int,
    me: bytes,
    progress: Progress | None = None,
    name: str | None = None,
) -> int:
    """Send elements to a receiver; return their number when all of them were delivered.

    The first element has the number ``start``. A sender that is started again keeps its id, ``me``,
    so a receiver that is still there recognizes the elements that it has.

    Raises:
        SourceError: There is no sign of a receiver for ``timeout`` seconds, or it leaves early.
        SpecMismatch: An element cannot be sent.
    """
    dump = pack_trusted if trusted else _packing()
    with Link(endpoint, zmq.ROUTER if endpoint.bind else zmq.DEALER) as link:

        def is_gone(route: Route) -> bool:
            # A DEALER has one peer at a time: if another receiver answers, the last one is gone.
            return not (link.addresses_peers and link.send(route, buffer.hello()))

        name = name or f"{gethostname()}:{os.getpid()}"
        buffer = SendBuffer(endpoint.hwm, serve, is_gone, me, name=name, first=start)
        connection = _Connection(
            f"{endpoint.who}: {endpoint.addresses[0]!r}", link, buffer, timeout, progress
        )
        marked = elements if progress is None else _marked(elements, progress, start)
        items = (pack_numbered(dump, x, i) for i, x in enumerate(marked, start))
        try:
            connection.until(lambda: buffer.route is not None)
            while (item := _next(items, connection)) is not None:
                connection.put(item)
            buffer.end()
            connection.until(lambda: buffer.finished)
        except BaseException as error:
            if buffer.route is not None and not buffer.finished:
                link.send(buffer.route, buffer.stop(_reason(error)))
            link.close(LINGER_OF_ERRORS if buffer.route is not None else 0)
            if progress is not None:
                progress.report(buffer.acknowledged)
            raise
        if progress is not None:
            progress.report(buffer.acknowledged)
        if buffer.route is not None:
            link.send(buffer.route, buffer.done())
        link.close(LINGER)
        return buffer.acknowledged - start


def _marked(elements: Iterator[object], progress: Progress, start: int) -> Iterator[object]:
    for number in count(start):
        progress.mark(number)
        try:
            # not through a local variable, which would keep the element alive
            yield next(elements)
        except StopIteration:
            return


def _packing() -> Callable[[object], Packed]:
    # A message has tuples without names, as a file has: all must have the same names.
    tuple_names = SameTupleNames()

    def dump(element: object) -> Packed:
        tuple_names.check(spec_of(element))
        return pack(element)

    return dump


def _next(items: Iterator[Packed], connection: _Connection) -> Packed | None:
    try:
        return next(items, None)
    except Exception as error:
        connection.fail(error)
        raise


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"

"""One pass of a sender, from the first element of a flow to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final

import attrs
import zmq

from flowdsl.elements.specs import spec_of
from flowdsl.errors import SourceError
from flowdsl.remote.message import Frame, Packed, Route, pack, pack_numbered, pack_trusted
from flowdsl.remote.send_buffer import SendBuffer
from flowdsl.remote.sockets import BEAT, LINGER, LINGER_OF_ERRORS, Endpoint, Link
from flowdsl.storage.codec import SameTupleNames


@attrs.define
class _Connection:
    """The sockets of a sender with its send buffer."""

    at: str
    """The operator and the address, for error messages."""
    link: Link
    buffer: SendBuffer
    timeout: float | None
    listened: float = 0.0
    """The time of the last look for messages."""
    announced: float = 0.0
    """The time when this sender last announced its position."""

    def until(self, done: Callable[[], bool], limit: float = inf) -> None:
        """Send and listen until ``done()`` is True, or for ``limit`` seconds.

        Raises:
            SourceError: The receiver cannot continue, or no element was taken for too long.
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
            news = link.receive(0 if done() else BEAT)
            before = buffer.base + buffer.held, buffer.receiver
            for route, frames in news:
                self._process(route, frames)
            self._transmit()
            if not news and now - self.announced > BEAT:
                self._announce()
                self.announced = now
            if done() or now - began > limit:
                return
            if before != (buffer.base + buffer.held, buffer.receiver):
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
        while (frames := buffer.due()) is not None:
            assert buffer.route is not None
            if not self.link.send(buffer.route, frames):
                return
            buffer.sent()

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
            f"{self.at}: after {buffer.taken} elements, {what} for {self.timeout} s; is "
            f"fl.from_zmq running at the other end, with a key that is known here?"
            f"{self.link.refusals}{buffer.refusals}"
        )


_LISTEN_INTERVAL: Final = 0.01
_SECONDS_TO_REPORT: Final = 2.0
"""Seconds to wait until the receiver knows that the flow failed."""
_ONLY_PEER: Route = (0, b"")
"""The route to the peer of a connecting socket, even if it has not answered yet."""


def send(
    endpoint: Endpoint,
    elements: Iterator[object],
    trusted: bool,
    serve: bool,
    timeout: float | None,
) -> int:
    """Send elements to a receiver; return their number when it has taken all of them.

    Raises:
        SourceError: No element is taken in ``timeout`` seconds, or the receiver leaves early.
        SpecMismatch: An element cannot be sent.
    """
    kind, dump = (
        zmq.ROUTER if endpoint.bind else zmq.DEALER,
        pack_trusted if trusted else _packing(),
    )
    with Link(endpoint, kind) as link:

        def is_gone(route: Route) -> bool:
            # A DEALER has one peer at a time: if another receiver answers, the last one is gone.
            return not (link.addresses_peers and link.send(route, buffer.hello()))

        buffer = SendBuffer(endpoint.hwm, serve, is_gone)
        connection = _Connection(
            f"{endpoint.who}: {endpoint.addresses[0]!r}", link, buffer, timeout
        )
        items = (pack_numbered(dump, x, i) for i, x in enumerate(elements))
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
            raise
        if buffer.route is not None:
            link.send(buffer.route, buffer.done())
        link.close(LINGER)
        return buffer.taken


def _packing() -> Callable[[object], Packed]:
    # A message has tuples without names, like a file.
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

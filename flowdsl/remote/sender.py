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
from flowdsl.remote.message import Frame, Packed, Route, pack, pack_trusted, packed
from flowdsl.remote.send_buffer import SendBuffer
from flowdsl.remote.sockets import BEAT, LINGER, LINGER_OF_ERRORS, Ends, Link
from flowdsl.storage.codec import SamePlaces


@attrs.define
class _Connection:
    """The sockets of a sender with its send buffer."""

    at: str
    """The operator and the address, for error messages."""
    link: Link
    box: SendBuffer
    timeout: float | None
    listened: float = 0.0
    """The time of the last look for messages."""
    announced: float = 0.0
    """The time when this sender last announced its position."""

    def until(self, done: Callable[[], bool], most: float = inf) -> None:
        """Send and listen until ``done()`` is True, or for ``most`` seconds.

        Raises:
            SourceError: The receiver cannot continue, or no element was taken for too long.
        """
        box, link, began = self.box, self.link, monotonic()
        since = began
        while True:
            self._transmit()
            now = monotonic()
            has_room = box.route is not None and 2 * len(box.items) <= box.hwm
            if done() and has_room and now - self.listened < _LISTEN_INTERVAL:
                return  # listening after each element would cost more than sending it
            self.listened = now
            news = link.receive(0 if done() else BEAT)
            before = box.base, box.receiver
            for route, frames in news:
                self._process(route, frames)
            self._transmit()
            if not news and now - self.announced > BEAT:
                self._announce()
                self.announced = now
            if done() or now - began > most:
                return
            if before != (box.base, box.receiver):
                since = now
            elif self.timeout is not None and now - since > self.timeout:
                raise self._timed_out()

    def put(self, item: Packed) -> None:
        """Send an element as soon as there is room for it."""
        with self._placed():
            self.box.put(item)
        self.until(lambda: not self.box.full)

    def fail(self, error: Exception) -> None:
        """Report the failure of the flow to the receiver, in place of the next element."""
        self.box.end(_reason(error))
        self.until(lambda: self.box.finished, most=_SECONDS_TO_REPORT)

    def _transmit(self) -> None:
        box = self.box
        while (frames := box.due()) is not None:
            assert box.route is not None
            if not self.link.send(box.route, frames):
                return
            box.sent()

    def _process(self, route: Route, frames: list[Frame]) -> None:
        with self._placed():
            answer = self.box.receive(route, frames)
        if answer is not None:
            self.link.send(route, answer)

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Prefix errors with the operator and the address."""
        try:
            yield
        except SourceError as error:
            raise SourceError(f"{self.at}: {error}") from error

    def _announce(self) -> None:
        if self.box.route is not None:
            self.link.send(self.box.route, self.box.hello())
        elif not self.link.named:
            self.link.send(_ONLY_PEER, self.box.hello())

    def _timed_out(self) -> SourceError:
        box = self.box
        what = "no receiver was there" if box.route is None else "the receiver took nothing"
        return SourceError(
            f"{self.at}: after {box.taken} elements, {what} for {self.timeout} s; is fl.from_zmq "
            f"running at the other end, with a key that is known here?"
            f"{self.link.refusals}"
        )


_LISTEN_INTERVAL: Final = 0.01
_SECONDS_TO_REPORT: Final = 2.0
"""Seconds to wait until the receiver knows that the flow failed."""
_ONLY_PEER: Route = (0, b"")
"""The route to the peer of a connecting socket, even if it has not answered yet."""


def send(
    ends: Ends, elements: Iterator[object], trusted: bool, serve: bool, timeout: float | None
) -> int:
    """Send elements to a receiver; return their number when it has taken all of them.

    Raises:
        SourceError: No element is taken in ``timeout`` seconds, or the receiver leaves early.
        SpecMismatch: An element cannot be sent.
    """
    kind, dump = zmq.ROUTER if ends.bind else zmq.DEALER, pack_trusted if trusted else _packing()
    with Link(ends, kind) as link:

        def is_gone(route: Route) -> bool:
            return not (link.named and link.send(route, box.hello()))

        box = SendBuffer(ends.hwm, serve, is_gone)
        connection = _Connection(f"{ends.who}: {ends.addresses[0]!r}", link, box, timeout)
        items = (packed(dump, x, i) for i, x in enumerate(elements))
        try:
            connection.until(lambda: box.route is not None)
            while (item := _next(items, connection)) is not None:
                connection.put(item)
            box.end()
            connection.until(lambda: box.finished)
        except BaseException as error:
            if box.route is not None and not box.finished:
                link.send(box.route, box.stop(_reason(error)))
            link.close(LINGER_OF_ERRORS if box.route is not None else 0)
            raise
        if box.route is not None:
            link.send(box.route, box.done())
        link.close(LINGER)
        return box.taken


def _packing() -> Callable[[object], Packed]:
    places = SamePlaces()

    def dump(element: object) -> Packed:
        places.check(spec_of(element))
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

"""send_zmq: run a flow, and send its elements to a receiver in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from math import inf
from time import monotonic
from typing import Final

import attrs
import zmq

from flowdsl.errors import SourceError
from flowdsl.node import E, FlowBase, T
from flowdsl.ops.queues import check_timeout
from flowdsl.remote.links import BEAT, LINGER, LINGER_OF_ERRORS, Ends, Link, check_flags
from flowdsl.remote.message import Frame, Packed, Route, pack, pack_trusted, packed
from flowdsl.remote.outbox import Outbox
from flowdsl.remote.pushing import Format, check_format, push
from flowdsl.remote.security import Curve


class Sending(FlowBase[T, E]):
    """Operators that run a flow for another process."""

    def send_zmq(
        self,
        address: str,
        *,
        bind: bool = False,
        format: Format = "flowdsl",  # noqa: A002  # as tensorpack has it
        trusted: bool = False,
        hwm: int = 50,
        serve: bool = False,
        security: Curve | None = None,
        insecure: bool = False,
        timeout: float | None = None,
        on_bound: Callable[[str], object] | None = None,
    ) -> int:
        """Run one pass, and send its elements to a receiver: ``fl.from_zmq`` in another process.

        Gives the number of elements, when the receiver has taken them all; a flow that never ends
        is sent for ever. ``address`` is ``ipc://path`` or ``tcp://host:port``. One of the two ends
        binds it and the other connects, in any order: here one connects, unless ``bind=True``.
        Nothing is made before a receiver is there, and then no more than ``hwm`` elements that it
        has not taken yet.

        While both ends live, each element arrives exactly once and in order, whatever happens to
        the connection: the receiver says what it took, and what a cut swallowed is sent again, at
        the latest with the next element that the flow makes. One
        sender has one receiver. If that leaves, or another comes in its place, it has taken
        elements that the next will not see, which is an error here; with ``serve=True`` the next
        receiver goes on where the last has left. If a receiver dies, what it had taken is gone with
        it, and what it had not is sent to the next. If the sender dies, up to ``hwm`` elements are
        lost: those that were made and not taken.

        Elements are sent in the codec of files, which has no pickle in it: numbers, text, arrays,
        lists, dicts, tuples and records. ``trusted=True`` pickles them instead, whatever they are;
        the receiver must say so too. Plain ``tcp`` beyond this machine is refused: give keys as
        ``security=Curve(...)``, or say ``insecure=True``. ``timeout`` is how many seconds to wait
        for a receiver to take something; None is for ever. ``on_bound`` is called with the address
        that was bound, which for ``tcp://127.0.0.1:*`` has a port that was free.

        ``format="zmq_ops"`` is what tensorpack's ``ZMQInput`` reads: arrays and numbers only, in
        one frame (the layout is in ``flowdsl.remote.zmq_ops``). It is sent from a ``PUSH`` socket,
        as there: to whoever connects, in turn; nobody says what arrived, and the receiver is told
        of no end. It gives the number of elements when the system has them all to be carried; what
        a connection still holds when it is cut, or the sender has gone, may be lost. ``timeout`` is
        how many seconds may pass in which it takes none.

        Errors: ``InvalidFlow`` for an argument, or an address that is open to others;
        ``SourceError`` if the address cannot be bound, no receiver takes anything in ``timeout``
        seconds, it refuses what is sent, or leaves too early; ``SpecMismatch`` for an element that
        cannot be sent, with its number; whatever the flow raises, which the receiver is told of.

        >>> import flowdsl as fl, tempfile, threading
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     address = f"ipc://{folder}/squares"
        ...     squares = fl.from_range(4).map(lambda i: (i, i * i))
        ...     sender = threading.Thread(target=squares.send_zmq, args=[address])
        ...     sender.start()
        ...     received = fl.from_zmq(address, tuple[int, int]).collect()
        ...     sender.join()
        >>> received
        [(0, 0), (1, 1), (2, 4), (3, 9)]

        Source: ``send_dataflow_zmq`` in tensorpack; selective acknowledgement and going back as in
        any sliding-window protocol (V. Cerf and R. Kahn, 1974).
        """
        who = "send_zmq"
        ends = Ends(who, (address,), bind, hwm, security, insecure, on_bound)
        check_timeout(who, timeout)
        check_flags(who, trusted=trusted, serve=serve)
        check_format(who, format, trusted=trusted, serve=serve)
        with closing(iter(self)) as elements:
            if format == "zmq_ops":
                return push(ends, elements, timeout)
            return _send(ends, elements, trusted, serve, timeout)


@attrs.define
class _Post:
    """A sender at work: its sockets and its outbox."""

    at: str
    """The operator and the address, for error messages."""
    link: Link
    box: Outbox
    timeout: float | None
    listened: float = 0.0
    said: float = 0.0

    def until(self, done: Callable[[], bool], most: float = inf) -> None:
        """Send and listen until ``done()`` is true, or for ``most`` seconds.

        Raises:
            SourceError: The receiver cannot go on, or nobody took anything for too long.
        """
        box, link, began = self.box, self.link, monotonic()
        since = began
        while True:
            self._transmit()
            now = monotonic()
            few = box.route is not None and 2 * len(box.items) <= box.hwm
            if done() and few and now - self.listened < _DEAF:
                return  # listening after each element would cost more than sending it
            self.listened = now
            news = link.receive(0 if done() else BEAT)
            before = box.base, box.receiver
            for route, frames in news:
                self._hear(route, frames)
            self._transmit()
            if not news and now - self.said > BEAT:
                self._say_where_we_are()
                self.said = now
            if done() or now - began > most:
                return
            if before != (box.base, box.receiver):
                since = now
            elif self.timeout is not None and now - since > self.timeout:
                raise self._nobody()

    def put(self, item: Packed) -> None:
        """Send an element as soon as there is room for it."""
        with self._placed():
            self.box.put(item)
        self.until(lambda: not self.box.full)

    def fail(self, error: Exception) -> None:
        """Tell the receiver that the flow failed, in place of the next element."""
        self.box.end(_told(error))
        self.until(lambda: self.box.finished, most=_GRACE)

    def _transmit(self) -> None:
        box = self.box
        while (frames := box.due()) is not None:
            assert box.route is not None
            if not self.link.send(box.route, frames):
                return
            box.sent()

    def _hear(self, route: Route, frames: list[Frame]) -> None:
        with self._placed():
            answer = self.box.hear(route, frames)
        if answer is not None:
            self.link.send(route, answer)

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Add the operator and the address to errors."""
        try:
            yield
        except SourceError as error:
            raise SourceError(f"{self.at}: {error}") from error

    def _say_where_we_are(self) -> None:
        if self.box.route is not None:
            self.link.send(self.box.route, self.box.hello())
        elif not self.link.named:
            self.link.send(_THE_ONE, self.box.hello())

    def _nobody(self) -> SourceError:
        box = self.box
        what = "no receiver was there" if box.route is None else "the receiver took nothing"
        return SourceError(
            f"{self.at}: after {box.taken} elements, {what} for {self.timeout} s; is fl.from_zmq "
            f"running at the other end, with a key that is known here?"
            f"{self.link.refusals}"
        )


_DEAF: Final = 0.01
_GRACE: Final = 2.0
"""Seconds that a receiver has to learn that the flow failed."""
_THE_ONE: Route = (0, b"")
"""The route to the peer of a socket that connects, whether or not it has answered."""


def _send(
    ends: Ends, elements: Iterator[object], trusted: bool, serve: bool, timeout: float | None
) -> int:
    kind, dump = zmq.ROUTER if ends.bind else zmq.DEALER, pack_trusted if trusted else pack
    with Link(ends, kind) as link:

        def is_gone(route: Route) -> bool:
            return not (link.named and link.send(route, box.hello()))

        box = Outbox(ends.hwm, serve, is_gone)
        post = _Post(f"{ends.who}: {ends.addresses[0]!r}", link, box, timeout)
        made = (packed(dump, x, i) for i, x in enumerate(elements))
        try:
            post.until(lambda: box.route is not None)
            while (item := _next(made, post)) is not None:
                post.put(item)
            box.end()
            post.until(lambda: box.finished)
        except BaseException as error:
            if box.route is not None and not box.finished:
                link.send(box.route, box.stop(_told(error)))
            link.close(LINGER_OF_ERRORS if box.route is not None else 0)
            raise
        if box.route is not None:
            link.send(box.route, box.done())
        link.close(LINGER)
        return box.taken


def _next(made: Iterator[Packed], post: _Post) -> Packed | None:
    try:
        return next(made, None)
    except Exception as error:
        post.fail(error)
        raise


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"

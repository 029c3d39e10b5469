"""From a ``PUSH`` socket to a ``PULL`` socket: the zmq_ops format, and formats of other programs.

The protocol has no acknowledgements. A sender knows only which elements the operating system has
accepted. Elements in the system's buffers are lost if the connection breaks, and may be lost if the
sender exits before the receiver has read them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, TypeAlias

import attrs
import msgspec
import zmq

from flowdsl.elements.specs import Spec
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.remote import zmq_ops
from flowdsl.remote.message import Frame, Kind, Packed, pack_numbered
from flowdsl.remote.receive_state import Tally
from flowdsl.remote.schema import SchemaCheck
from flowdsl.remote.sockets import BEAT, LINGER, Endpoint, Link
from flowdsl.remote.zmq_ops import Encoder

Format: TypeAlias = Literal["flowdsl", "zmq_ops"]
FormatOfAll: TypeAlias = Literal["flowdsl", "zmq_ops", "bytes", "msgpack"]
"""The formats that can be received; those in ``Format`` can also be sent."""


def _unpacked(frame: Frame) -> Any:
    try:
        return msgspec.msgpack.decode(frame)
    except msgspec.DecodeError as error:
        raise SourceError(f"not MessagePack: {error}") from error


PULLED: dict[str, Callable[[Frame], Any]] = {
    "zmq_ops": zmq_ops.decode,
    "bytes": bytes,
    "msgpack": _unpacked,
}
"""The formats of senders that push, each with the function that decodes a frame."""


def check_format(
    who: str, value: object, formats: Sequence[str], given: Mapping[str, bool]
) -> None:
    """Refuse an unknown format, and arguments that only flowdsl's own format supports.

    ``given`` says for each such argument whether the caller passed it.
    """
    if value not in formats:
        *first, last = map(repr, formats)
        raise InvalidFlow(f"{who}: format must be {', '.join(first)} or {last}, got {value!r}")
    for name, is_given in given.items():
        if is_given and value != "flowdsl":
            raise InvalidFlow(f"{who}: there is no {name}= with format={value!r}; leave it out")


def pulled(
    endpoint: Endpoint, name: str, check: SchemaCheck, timeout: float | None, tally: Tally
) -> Iterator[Any]:
    """Yield the elements that senders push in the format of this name."""
    received, since, decode = 0, monotonic(), PULLED[name]
    with Link(endpoint, zmq.PULL) as link:
        while True:
            for route, frames in link.receive(BEAT, most=1):  # the rest waits in ZMQ's queue
                where = f"from_zmq: element {received} at {link.address(route)!r}"
                try:
                    if len(frames) > 1:
                        raise SourceError(f"not an element: {len(frames)} frames")
                    element = check(decode(frames[0]))
                except (SourceError, SpecMismatch) as error:
                    raise type(error)(f"{where}: {error}") from error
                tally.addresses[link.address(route)] += 1
                received += 1
                yield element
                since = monotonic()
            if timeout is not None and monotonic() - since > timeout:
                raise SourceError(
                    f"from_zmq: after {received} elements, none came in {timeout} s at "
                    f"{endpoint.addresses_text}; is the sender running, with a PUSH socket?"
                    f"{link.refusals}"
                )


def push(endpoint: Endpoint, elements: Iterator[object], spec: Spec, timeout: float | None) -> int:
    """Send elements to the connected receivers, round-robin; return the number sent.

    An element counts as sent when the operating system has accepted it. ``spec`` is the spec of the
    elements, which determines the order of their components.
    """
    with Link(endpoint, zmq.PUSH) as link:
        pushed = _Pushed(f"{endpoint.who}: {endpoint.addresses_text}", link, timeout)
        for frame in _frames_of(elements, Encoder(spec), pushed):
            pushed.put(frame)
        pushed.wait_until_accepted()
        link.close(LINGER)
    return pushed.count


@attrs.define
class _Pushed:
    """The elements that this end has pushed, and the elements not accepted by the system yet."""

    at: str
    link: Link
    timeout: float | None
    count: int = 0
    waiting: deque[zmq.MessageTracker] = attrs.field(factory=deque[Any])
    """The elements that the system has not accepted yet."""
    since: float = 0.0
    """The time when the system last accepted an element, or an element was last pushed."""

    def put(self, frame: Frame) -> None:
        """Push an element, as soon as the socket accepts one."""
        self.since = monotonic()
        while (tracker := self.link.push(frame, BEAT)) is None:
            self._update()
        self.count += 1
        self.waiting.append(tracker)
        while self.waiting and self.waiting[0].done:
            self.waiting.popleft()

    def wait_until_accepted(self) -> None:
        """Wait until the system has accepted all elements."""
        self.since = monotonic()
        while self.waiting:
            with suppress(zmq.NotDone):
                self.waiting[0].wait(BEAT)
            self._update()

    def _update(self) -> None:
        """Update the accepted elements, and check the timeout.

        Raises:
            SourceError: The system has accepted no element for ``timeout`` seconds.
        """
        before = len(self.waiting)
        self.waiting = deque(tracker for tracker in self.waiting if not tracker.done)
        if len(self.waiting) < before:
            self.since = monotonic()
        elif self.timeout is not None and monotonic() - self.since > self.timeout:
            raise SourceError(
                f"{self.at}: after {self.count - len(self.waiting)} elements, nobody received for "
                f"{self.timeout} s{self.link.refusals}"
            )


def _frames_of(elements: Iterator[object], encode: Encoder, pushed: _Pushed) -> Iterator[Frame]:
    """Yield the frames of the elements; on an error, first wait until the others are accepted."""
    try:
        for i, x in enumerate(elements):
            yield pack_numbered(lambda x: Packed(Kind.ELEMENT, (encode(x),)), x, i).frames[0]
    except Exception as error:
        try:
            pushed.wait_until_accepted()
        except SourceError as late:
            error.add_note(str(late))
        raise

"""The sockets of a sender or a receiver."""

from __future__ import annotations

import errno
import os
import socket as socketlib
import stat
import threading
from collections.abc import Callable, Sequence
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import zmq

from flowdsl.errors import FlowError, InvalidFlow, SourceError
from flowdsl.nodes import is_int
from flowdsl.remote.handshakes import Handshakes
from flowdsl.remote.message import (
    MAX_ARRAY_FRAMES,
    MAX_FRAME_BYTES,
    Frame,
    Route,
    is_sealed,
    may_be_sealed,
    seal,
)
from flowdsl.remote.security import Curve, check_address, host_of
from flowdsl.resources.cancellation import is_cancelled
from flowdsl.resources.limits import check_room
from flowdsl.resources.logs import logger

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

_log = logger()

BEAT: Final = 0.05
"""Seconds without a message after which each end repeats its position."""
LINGER: Final = 1.0
"""Seconds to wait until the last messages are sent."""
LINGER_OF_ERRORS: Final = 0.2
"""Seconds to wait for the last messages after an error or Ctrl-C, while the user waits."""
_MAX_AT_ONCE = 1000
_SOCKETS, _SOCKETS_PER_ADDRESS = 1000, 4
"""The limit on sockets of a context: a base, and four per address, two of them monitors."""
_FILES, _FILES_PER_ADDRESS = 9, 4
"""The descriptors that a context of libzmq opens, and that each socket with one peer opens."""
_SECONDS_TO_LOOK_UP = 1.0
"""Seconds that an error waits for the addresses of hosts, which a name server may not answer."""
_DOMAIN = "flowdsl"
_SECOND = 1000
"""A second in ZMQ's unit of time."""


@attrs.frozen
class Endpoint:
    """The addresses and security options of a sender or receiver."""

    who: str
    addresses: tuple[str, ...]
    bind: bool
    hwm: int
    security: Curve | None
    insecure: bool
    on_bound: Callable[[str], object] | None

    def __attrs_post_init__(self) -> None:
        who = self.who
        check_flags(who, bind=self.bind, insecure=self.insecure)
        if self.security is not None and not isinstance(self.security, Curve):
            raise InvalidFlow(f"{who}: security must be a Curve or None, got {self.security!r}")
        if not is_int(self.hwm, 1, 1 << 30):
            raise InvalidFlow(f"{who}: hwm must be an int from 1 to 2**30 - 1, got {self.hwm!r}")
        for address in self.addresses:
            check_address(who, address, self.bind, self.security, self.insecure)
        if not self.addresses or len(set(self.addresses)) < len(self.addresses):
            raise InvalidFlow(
                f"{who}: address must be one or several different ones, got {self.addresses!r}"
            )
        keys, count = len(self.security.peers) if self.security else 1, len(self.addresses)
        if not self.bind and keys not in (1, count):
            raise InvalidFlow(
                f"{who}: security has {keys} peers for {count} addresses; give the public key of "
                f"the end that binds, one for all addresses or one for each"
            )
        if self.on_bound is not None and not (self.bind and callable(self.on_bound)):
            raise InvalidFlow(
                f"{who}: on_bound must be a function, and needs bind=True; got {self.on_bound!r}"
            )

    @property
    def addresses_text(self) -> str:
        """The addresses, as titles and error messages show them."""
        return ", ".join(map(repr, self.addresses))


def _check_free(address: str) -> None:
    """Refuse the path of a file, or of a socket in use, since ZMQ would remove it.

    Raises:
        OSError: The path exists, or is in use, with the same errno as a tcp port in use.
    """
    path = address.removeprefix("ipc://")
    if path == address or path.startswith("@") or not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    with socketlib.socket(socketlib.AF_UNIX) as knock:
        if knock.connect_ex(path) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def check_flags(who: str, **flags: object) -> None:
    """Refuse a flag that is not a bool."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidFlow(f"{who}: {name} must be True or False, got {value!r}")


class Link:
    """The sockets of one pass, one for each address; a context manager that closes them."""

    def __init__(self, endpoint: Endpoint, kind: int) -> None:
        """``kind`` is the ZMQ socket type. Raises SourceError if an address is not available."""
        self._endpoint = endpoint
        count = len(endpoint.addresses)
        check_room(endpoint.who, threads=2, descriptors=_FILES + _FILES_PER_ADDRESS * count)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(
            zmq.MAX_SOCKETS, _SOCKETS + _SOCKETS_PER_ADDRESS * len(endpoint.addresses)
        )
        self._sockets: list[zmq.Socket[bytes]] = []
        self._poller = zmq.Poller()
        self._handshakes = Handshakes(endpoint.who, endpoint.bind, endpoint.security is not None)
        self.damaged = 0
        """Messages whose bytes changed on the way; the other end sends them again."""
        self._seals = kind in (zmq.ROUTER, zmq.DEALER) and endpoint.security is None
        self._sealing: set[Route] = set()
        """The routes by which a sealed message has arrived."""
        self.addresses_peers = kind == zmq.ROUTER
        """True for a ROUTER socket: it may have several peers, and messages carry a peer's name.
        A DEALER socket has one peer, which needs no name and can be reached before it answers."""
        self._authenticator: ThreadAuthenticator | None = None
        try:
            if endpoint.bind and endpoint.security is not None:
                self._authenticate(endpoint.security)
            for k, address in enumerate(endpoint.addresses):
                self._sockets.append(self._open(kind, k, address))
        except BaseException as error:
            # An interrupt may have left an unregistered socket in a frame, and a context waits
            # until all of its sockets are closed.
            clear_frames(error.__traceback__)
            self.close()
            raise

    def _authenticate(self, security: Curve) -> None:
        from zmq.auth.thread import ThreadAuthenticator  # imports asyncio, which few need

        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(_DOMAIN, _Known(security.peers))

    def _open(self, kind: int, k: int, address: str) -> zmq.Socket[bytes]:
        endpoint = self._endpoint
        socket = self._context.socket(kind)
        options: dict[int, Any] = {
            # More than may be in flight: the send buffer enforces the actual limit.
            zmq.SNDHWM: endpoint.hwm if kind == zmq.PUSH else 2 * endpoint.hwm + 100,
            zmq.RCVHWM: endpoint.hwm if kind == zmq.PULL else 2 * endpoint.hwm + 100,
            zmq.LINGER: 0,
            zmq.MAXMSGSIZE: MAX_FRAME_BYTES,
            zmq.RECONNECT_IVL: 50,
            zmq.RECONNECT_IVL_MAX: 1 * _SECOND,
            zmq.IPV6: int("[" in address),
        }
        # TCP keepalive detects a dead machine, instead of ZMQ's heartbeat. The heartbeat treats a
        # full socket as dead; and if the other end leaves a socket that is full or about to close,
        # its timer aborts the process ("Assertion failed: !_io_error", libzmq 4.3.5).
        options |= {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 10}
        options |= {zmq.TCP_KEEPALIVE_INTVL: 5, zmq.TCP_KEEPALIVE_CNT: 3}
        if kind not in (zmq.PUSH, zmq.PULL):
            # Both ends repeat their positions, and keepalive is inactive while data is in flight.
            options[zmq.TCP_MAXRT] = 10 * _SECOND
        if kind == zmq.PUSH:
            # Queue nothing for an absent peer. Not for other socket types, which would lose the
            # last messages: unread messages are dropped when their connection ends.
            options[zmq.IMMEDIATE] = 1
        if kind == zmq.ROUTER:
            options[zmq.ROUTER_MANDATORY] = 1
        if endpoint.bind and address.startswith("ipc://") and not endpoint.insecure:
            options[zmq.IPC_FILTER_UID] = os.getuid()
        if endpoint.security is not None:
            options[zmq.CURVE_SECRETKEY] = endpoint.security.secret.encode()
            options[zmq.CURVE_PUBLICKEY] = endpoint.security.public.encode()
            if endpoint.bind:
                options |= {zmq.CURVE_SERVER: 1, zmq.ZAP_DOMAIN: _DOMAIN.encode()}
            else:
                options[zmq.CURVE_SERVERKEY] = endpoint.security.peer(k).encode()
        for option, value in options.items():
            socket.setsockopt(option, value)
        try:
            self._handshakes.watch(socket, address, self._poller)
            if endpoint.bind:
                _check_free(address)
                socket.bind(address)
            else:
                socket.connect(address)
        except (zmq.ZMQError, OSError) as error:
            socket.close()
            how = "bound" if endpoint.bind else "connected"
            raise SourceError(
                f"{endpoint.who}: {address!r} cannot be {how}: {os.strerror(error.errno or 0)}"
            ) from error
        self._poller.register(socket, zmq.POLLIN)
        if endpoint.bind and endpoint.on_bound is not None:
            endpoint.on_bound(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        return socket

    def address(self, route: Route) -> str:
        """Return the address at which a message arrived, as the user wrote it."""
        return self._endpoint.addresses[route.socket]

    @property
    def refusals(self) -> str:
        """The failed connections, to append to an error message."""
        return self._handshakes.summary + self._unknown_hosts()

    def _unknown_hosts(self) -> str:
        """Describe hosts without an address: ZMQ tries to find them again and again, silently."""
        hosts = dict.fromkeys(
            host
            for address in self._endpoint.addresses
            if not self._endpoint.bind and (host := host_of(address)) is not None
        )
        reasons = dict[str, str]()
        threads = [
            threading.Thread(target=_look_up, args=[host, reasons], daemon=True) for host in hosts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_SECONDS_TO_LOOK_UP)
        return "".join(f"; the host {host!r} is not found: {why}" for host, why in reasons.items())

    def routes(self) -> list[Route]:
        """Return the routes of connecting sockets, even if no peer has answered yet."""
        return [Route(k, peer=b"") for k in range(len(self._sockets))]

    def receive(self, seconds: float, most: int = _MAX_AT_ONCE) -> list[tuple[Route, list[Frame]]]:
        """Return the waiting messages, or the next ones to arrive within this many seconds.

        At most ``most`` messages are returned for each address.

        Raises:
            FlowError: The pass was cancelled.
        """
        if is_cancelled():
            raise FlowError(f"{self._endpoint.who}: the pass was cancelled")
        messages: list[tuple[Route, list[Frame]]] = []
        ready = dict(self._poller.poll(round(seconds * _SECOND)))
        self._handshakes.update(ready)
        for k, socket in enumerate(self._sockets):
            if socket not in ready:
                continue
            for _ in range(most):
                try:
                    name = socket.recv(zmq.NOBLOCK) if self.addresses_peers else b""
                    frames = _frames(socket)
                except zmq.Again:
                    break
                messages += self._unsealed(Route(k, name), frames)
        return messages

    def _unsealed(self, route: Route, frames: list[Frame]) -> list[tuple[Route, list[Frame]]]:
        """Remove the seal of a message; drop a damaged one, which the other end sends again.

        A message of a stranger, or of another version, has no seal, and is returned unchanged.
        """
        if not self._seals:
            return [(route, frames)]
        if is_sealed(frames):
            self._sealing.add(route)
            return [(route, frames[:-1])]
        if route not in self._sealing and not may_be_sealed(frames):
            return [(route, frames)]
        self._count_damaged(route.socket)
        return []

    def _count_damaged(self, k: int) -> None:
        self.damaged += 1
        if self.damaged == 1:
            _log.warning(
                "%s: a message at %r was damaged on the way, and is sent again; further ones are "
                "only counted",
                *(self._endpoint.who, self._endpoint.addresses[k]),
            )

    def send(self, route: Route, frames: Sequence[Frame]) -> bool:
        """Send a message if that does not block; return True if it was sent."""
        parts = [route.peer, *frames] if self.addresses_peers else list(frames)
        if self._seals:
            parts.append(seal(frames))
        try:
            self._sockets[route.socket].send_multipart(parts, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def push(self, frame: Frame, seconds: float) -> zmq.MessageTracker | None:
        """Send a frame through the first socket; None if it has no room within this many seconds.

        The tracker is done when the system has accepted the frame, or its connection broke.
        """
        socket = self._sockets[0]
        message = zmq.Frame(frame, track=True, copy=False, copy_threshold=0)
        tracker: zmq.MessageTracker = message.tracker
        try:
            socket.send(message, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._handshakes.update()
            socket.poll(round(seconds * _SECOND), zmq.POLLOUT)
            return None
        return tracker

    def close(self, linger: float = 0) -> None:
        """Close the sockets; unsent messages get at most ``linger`` seconds."""
        if self._authenticator is not None:
            self._authenticator.stop()
            self._authenticator = None
        # Close each socket explicitly: a context that is collected in a cycle has lost its list of
        # sockets, and would wait for them forever.
        self._handshakes.close()
        for socket in self._sockets:
            socket.close(round(linger * _SECOND))
        self._sockets.clear()
        self._context.destroy(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _look_up(host: str, reasons: dict[str, str]) -> None:
    """Add to ``reasons`` why a host has no address, if it has none."""
    try:
        socketlib.getaddrinfo(host, None)
    except OSError as error:
        reasons[host] = error.strerror or str(error)


def _frames(socket: zmq.Socket[bytes]) -> list[Frame]:
    """Read the frames of one message; drop frames beyond the maximum of a valid message."""
    frames: list[Frame] = []
    more = True
    while more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        more = frame.more
        if len(frames) < MAX_ARRAY_FRAMES + 4:
            frames.append(frame.buffer)
    return frames


class _Known:
    """Admits the clients with these public keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = {key.encode() for key in keys}

    def callback(self, domain: str, key: bytes) -> bool:
        del domain
        return key in self._keys

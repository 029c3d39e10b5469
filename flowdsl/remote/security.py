"""Security: checks which addresses may be unencrypted; CURVE keys for the others."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from ipaddress import ip_address

import attrs
import zmq

from flowdsl.errors import InvalidFlow

_TCP = re.compile(r"tcp://(\[[^\]]*\]|[^:;\[\]]+):(\d+|\*)")
_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
"""A key in ZMQ's notation: 32 bytes in Z85."""


@attrs.frozen
class Keys:
    """A pair of CURVE keys; share the public key, and keep the secret key."""

    public: str
    secret: str = attrs.field(repr=False)


def make_keys() -> Keys:
    """Create a new pair of keys, each a string of 40 characters.

    >>> from flowdsl.remote import make_keys
    >>> keys = make_keys()
    >>> len(keys.public), len(keys.secret), keys.secret in repr(keys)
    (40, 40, False)

    Source: CurveZMQ (ZeroMQ RFC 26), on the curve of D. J. Bernstein.
    """
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


def _is_key(key: object) -> bool:
    return isinstance(key, str) and _KEY.fullmatch(key) is not None


def _check_secret(curve: object, field: object, secret: str) -> None:
    del curve, field
    if not _is_key(secret):
        raise InvalidFlow("Curve: secret must be a key that make_keys() made, 40 characters")


def _to_peers(peers: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(peers, Sequence) or not peers or not all(map(_is_key, peers)):
        raise InvalidFlow(
            f"Curve: peers must be a list of public keys that make_keys() made, 40 characters "
            f"each, and at least one; got {peers!r}"
        )
    return tuple(peers)


@attrs.frozen
class Curve:
    """Encryption and authentication of both ends with CURVE keys.

    ``secret`` is the secret key of this end. ``peers`` are the public keys of the other ends. If
    this end binds, only ends with these keys may connect. If this end connects, ``peers`` is
    the key of the end that binds, or one key for each of several addresses. Each end has its own
    pair of keys. Errors: ``InvalidFlow`` for an invalid key.

    >>> from flowdsl.remote import Curve, make_keys
    >>> trainer, reader = make_keys(), make_keys()
    >>> at_the_trainer = Curve(trainer.secret, peers=[reader.public])
    >>> at_the_reader = Curve(reader.secret, peers=[trainer.public])
    >>> at_the_reader.public == reader.public
    True
    """

    secret: str = attrs.field(repr=False, validator=_check_secret)
    peers: tuple[str, ...] = attrs.field(converter=_to_peers)

    @property
    def public(self) -> str:
        """The public key of this end, to be listed in the ``peers`` of the other ends."""
        return zmq.curve_public(self.secret.encode()).decode()

    def peer(self, k: int) -> str:
        """Return the public key of the end that binds the ``k``-th address."""
        return self.peers[min(k, len(self.peers) - 1)]


def check_address(
    who: str, address: object, bind: bool, security: Curve | None, insecure: bool
) -> None:
    """Refuse an invalid ZMQ address, or an address that others can reach without keys.

    Raises:
        InvalidFlow: The address is refused; the message names it and suggests a correction.
    """
    tcp = _TCP.fullmatch(address) if isinstance(address, str) else None
    ipc = isinstance(address, str) and address.startswith("ipc://") and len(address) > 6
    if tcp is None and not ipc:
        raise InvalidFlow(f"{who}: address must be ipc://path or tcp://host:port, got {address!r}")
    if ipc and not hasattr(os, "getuid"):
        raise InvalidFlow(
            f"{who}: {address!r} cannot be protected from other users on this system; "
            f"use tcp://127.0.0.1:port"
        )
    if tcp is not None and tcp[2] == "*" and not bind:
        raise InvalidFlow(f"{who}: a port to connect to must be a number, got {address!r}")
    if tcp is not None and tcp[2] != "*" and not (0 if bind else 1) <= int(tcp[2]) < 1 << 16:
        raise InvalidFlow(f"{who}: a port must be a number from 1 to 65535, got {address!r}")
    if tcp is None or security is not None or insecure or _is_loopback(tcp[1]):
        return
    raise InvalidFlow(
        f"{who}: {address!r} is open to other machines: whoever reaches it could read the elements "
        f"or send others; pass security=Curve(...) with keys of make_keys(), or insecure=True in a "
        f"network where that does not matter"
    )


def host_of(address: str) -> str | None:
    """Return the host of a tcp address."""
    tcp = _TCP.fullmatch(address)
    return None if tcp is None else tcp[1].strip("[]")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a host name or an interface, which may be reachable
        return False

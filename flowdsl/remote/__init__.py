"""Flows across machines, through ZMQ.

``message``        messages as frames of bytes: a header, and elements without pickle
``zmq_ops``        elements in the format of tensorpack's zmq_ops
``pushing``        the protocol of zmq_ops
``security``       addresses that may be unencrypted, and CURVE keys for the others
``sockets``        the sockets
``handshakes``     reports of failed connections
``send_buffer``    the sender's state: elements until they are taken; no sockets
``receive_state``  the receiver's state: its senders and their elements; no sockets
``schema``         checks elements against their declaration
``send_zmq``       the operator of a sender      ``sender``    one pass of a sender
``from_zmq``       the source of a receiver      ``receiver``  one pass of a receiver
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowdsl.remote.receive_state import Tally
    from flowdsl.remote.security import Curve, Keys, make_keys

__all__ = ["Curve", "Keys", "Tally", "make_keys"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Import public names on first access, since most programs do not need ZMQ."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "receive_state" if name == "Tally" else "security"
    return getattr(import_module(f"{__name__}.{module}"), name)

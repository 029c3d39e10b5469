"""Flows across machines, by ZMQ.

``message``    what travels, as frames of bytes: the header, and elements without pickle
``zmq_ops``    elements in the format of tensorpack's zmq_ops     ``pushing``    its protocol
``security``   which addresses may be unencrypted, and CURVE keys for the others
``links``      the sockets
``outbox``     a sender's elements until they are taken; no sockets
``intake``     what a receiver knows of its senders; no sockets
``declared``   checks elements against their declaration
``sending``    send_zmq      ``sender``     one pass of it
``receiving``  from_zmq      ``receiver``   one pass of it
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
    """ZMQ and what goes with it is imported when it is asked for: every flow has ``send_zmq``."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "intake" if name == "Tally" else "security"
    return getattr(import_module(f"{__name__}.{module}"), name)

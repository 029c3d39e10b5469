"""Flows across machines, by ZMQ.

``message``    what travels, as frames of bytes: the header, and elements without pickle
``zmq_ops``    the same in the format of tensorpack's zmq_ops     ``pushing``    that protocol
``security``   which addresses may be plain, and CURVE keys for the others
``links``      the sockets
``outbox``     what a sender keeps until it was taken; no sockets      ``sending``    send_zmq
``intake``     what a receiver knows of its senders; likewise          ``receiver``   at work
``declared``   what elements are held against                          ``receiving``  from_zmq
"""

from __future__ import annotations

from flowdsl.remote.intake import Tally
from flowdsl.remote.security import Curve, Keys, make_keys

__all__ = ["Curve", "Keys", "Tally", "make_keys"]

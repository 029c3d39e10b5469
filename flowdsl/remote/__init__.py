"""Flows across machines, by ZMQ.

``message``    what travels, as frames of bytes: the header, and elements without pickle
``zmq_ops``    elements in the format of tensorpack's zmq_ops     ``pushing``    its protocol
``security``   which addresses may be unencrypted, and CURVE keys for the others
``links``      the sockets
``outbox``     a sender's elements until they are taken; no sockets    ``sending``    send_zmq
``intake``     what a receiver knows of its senders; no sockets        ``receiver``   one pass
``declared``   checks elements against their declaration               ``receiving``  from_zmq
"""

from __future__ import annotations

from flowdsl.remote.intake import Tally
from flowdsl.remote.security import Curve, Keys, make_keys

__all__ = ["Curve", "Keys", "Tally", "make_keys"]

"""A sender connects with a key that the receiver does not know.

It is rejected. Each end that notices logs it, and says so in the error after its `timeout`.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import flowdsl as fl
from flowdsl.remote import Curve, make_keys

logging.disable()  # both ends log it, in any order
here, known, stranger = make_keys(), make_keys(), make_keys()


def send(address: str) -> None:
    keys = Curve(stranger.secret, peers=[here.public])
    with suppress(fl.SourceError):
        fl.from_range(3).send_zmq(address, security=keys, timeout=2)


def begin(address: str) -> None:
    threading.Thread(target=send, args=[address]).start()


keys = Curve(here.secret, peers=[known.public])
fl.from_zmq("ipc://wire", security=keys, timeout=1, on_bound=begin).collect()

# Seen:
# flowdsl.errors.SourceError: from_zmq: after 0 elements, none came in 1 s at 'ipc://wire',
# waiting for 1 to end; of the senders, none has been heard; is flow.send_zmq running at the other
# end, with a key that is known here?; failed handshakes at 'ipc://wire': 1, its public key is not
# among those known here

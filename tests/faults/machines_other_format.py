"""Two machines use different formats: one has `format="zmq_ops"`.

The sockets of the two formats do not connect. The error after `timeout=` says that the handshakes
failed, and names the format as one possible reason.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import flowdsl as fl


def begin(address: str) -> None:
    def send() -> None:
        with suppress(fl.SourceError):
            fl.from_items([(1,)]).send_zmq(address, format="zmq_ops", timeout=2)

    threading.Thread(target=send).start()


logging.disable()  # both ends log it, in any order
fl.from_zmq("ipc://wire", timeout=1, on_bound=begin).collect()

# Seen:
# flowdsl.errors.SourceError: from_zmq: after 0 elements, none came in 1 s at 'ipc://wire',
# waiting for 1 to end; of the senders, none has been heard; is flow.send_zmq running at the other
# end, with a key that is known here?; failed handshakes at 'ipc://wire': ...has another format=...

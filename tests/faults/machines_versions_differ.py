"""The two machines have versions of flowdsl with different messages.

The end that has connected to the other names both versions. The end that was connected to logs it,
and waits for senders of its own version.
"""

from __future__ import annotations

import threading

import zmq

import flowdsl as fl


def other_version(address: str) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    with context.socket(zmq.DEALER) as socket:
        socket.connect(address)
        socket.send(b"FLOW\x01" + bytes(63))
        socket.recv()


def begin(address: str) -> None:
    threading.Thread(target=other_version, args=[address], daemon=True).start()


fl.from_zmq("ipc://wire", timeout=1, on_bound=begin).collect()

# Seen:
# from_zmq: ignored a message of a stranger; further ones are only counted: a message of version 1,
# this flowdsl reads version 2; both ends need flowdsl in one version
# flowdsl.errors.SourceError: from_zmq: after 0 elements, none came in 1 s at 'ipc://wire',
# waiting for 1 to end; of the senders, none has been heard; is flow.send_zmq running at the other
# end, with a key that is known here?; ignored 1 messages of strangers, the last: a message of
# version 1, this flowdsl reads version 2; both ends need flowdsl in one version

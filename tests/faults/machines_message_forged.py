"""A hostile sender forges a message that would end the receiver's process.

It is an array whose length NumPy would compute by a division by zero, which is a signal and not an
exception. Its shape is checked first, and the pass ends with an error that names the element.
"""

from __future__ import annotations

import threading
from unittest import mock

import msgspec

import flowdsl as fl
from flowdsl.remote import sender
from flowdsl.remote.message import Kind, Packed

array = msgspec.msgpack.encode(("<U0", (-1,), b"1234"))
forged = msgspec.msgpack.encode(msgspec.msgpack.Ext(2, array))


def send() -> None:
    message = Packed(Kind.ELEMENT, (forged,))
    with mock.patch.object(sender, "pack", return_value=message):
        try:
            fl.from_range(3).send_zmq("ipc://wire")
        except fl.SourceError as error:
            print(f"{str(error)[:45]}...")


hostile = threading.Thread(target=send)
hostile.start()
try:
    print(fl.from_zmq("ipc://wire").collect())
finally:
    hostile.join()

# Seen:
# send_zmq: 'ipc://wire': the receiver refused:...
# flowdsl.errors.SourceError: from_zmq: element 0 of the sender ...: not an element: negative
# dimensions: <U0[-1]

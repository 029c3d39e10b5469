"""The rows of a sender do not match the declaration of the receiver.

The first such row is an error that shows both types, at both ends. Nothing is cast.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send() -> None:
    try:
        fl.from_items([(1, 2.5)]).send_zmq("ipc://wire")
    except fl.SourceError as error:
        print(str(error)[:40])


thread = threading.Thread(target=send)
thread.start()
try:
    fl.from_zmq("ipc://wire", tuple[int, int]).collect()
finally:
    thread.join()

# Seen:
# send_zmq: 'ipc://wire': the receiver ref
# flowdsl.errors.SpecMismatch: from_zmq: element 0 of the sender ...: element.1: declared int, got
# float; declared (int, int), received (int, float)

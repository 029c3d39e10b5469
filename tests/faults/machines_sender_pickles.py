"""A sender pickles its rows, and the receiver does not trust it.

No pickle is opened. The error says why, at both ends.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send() -> None:
    try:
        fl.from_items([{1, 2}]).send_zmq("ipc://wire", trusted=True)
    except fl.SourceError as error:
        print(str(error)[:53])


thread = threading.Thread(target=send)
thread.start()
try:
    fl.from_zmq("ipc://wire").collect()
finally:
    thread.join()

# Seen:
# send_zmq: 'ipc://wire': the receiver refused: from_zm
# flowdsl.errors.SourceError: from_zmq: element 0 of the sender ...: the sender pickles its
# elements, and opening a pickle can run any code; pass trusted=True here too if you trust all who
# can reach this address, or remove trusted=True from the sender

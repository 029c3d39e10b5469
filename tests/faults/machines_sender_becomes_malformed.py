"""One of many senders sends an element that cannot be read.

With `senders=None` that sender is refused by name, and the others continue. With `senders=n` it is
an error.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send() -> None:
    fl.from_items([1, 2]).send_zmq("ipc://wire")
    try:
        fl.from_items([{3}]).send_zmq("ipc://wire", trusted=True)
    except fl.SourceError as error:
        print(f"{str(error)[:53]}...")
    fl.from_items([4, 5]).send_zmq("ipc://wire")


threading.Thread(target=send, daemon=True).start()
run = iter(fl.from_zmq("ipc://wire", senders=None))
print(next(run), next(run))
print(next(run), next(run))

# Seen:
# 1 2
# from_zmq: refused the sender ..., others continue: from_zmq: element 0 of the sender ...: the
# sender pickles its elements, and opening a pickle can run any code; pass trusted=True here too if
# you trust all who can reach this address, or remove trusted=True from the sender
# send_zmq: 'ipc://wire': the receiver refused: from_zm...
# 4 5

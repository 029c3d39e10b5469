"""A consumer works longer on a row than the `timeout` of the sender.

The sender reports it as an error, with the number of rows delivered, rather than wait forever.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send() -> None:
    try:
        fl.from_range(9).send_zmq("ipc://wire", timeout=1, hwm=2)
    except fl.SourceError as error:
        print(error)


thread = threading.Thread(target=send)
thread.start()
run = iter(fl.from_zmq("ipc://wire", int))
rows = [next(run), next(run)]
thread.join()  # the consumer is busy

# Seen:
# send_zmq: 'ipc://wire': after ... acknowledged elements, the receiver took nothing for 1 s; is
# fl.from_zmq running at the other end, with a key that is known here?

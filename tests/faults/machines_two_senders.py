"""Two senders connect to a receiver of one.

The second is refused with the reason and the correction; the rows of the first are complete.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send(rows: int) -> None:
    try:
        fl.from_range(rows).send_zmq("ipc://wire")
    except fl.SourceError as error:
        print(error)


threading.Thread(target=send, args=[10**9], daemon=True).start()
run = iter(fl.from_zmq("ipc://wire", int))
rows = [next(run)]
second = threading.Thread(target=send, args=[3])
second.start()
while second.is_alive():
    rows.append(next(run))
print(rows == list(range(len(rows))))

# Seen:
# send_zmq: 'ipc://wire': the receiver refused: it takes 1 sender and already has ...; its from_zmq
# needs senders=n for more
# True

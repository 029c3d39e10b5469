"""A consumer of windows over the rows of two machines stops.

Both senders keep the rows from which later windows are made, and send them to the next receiver.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send(flow: fl.Flow[int], address: str) -> None:
    flow.send_zmq(address, serve=True)


threads = [
    threading.Thread(target=send, args=[fl.from_range(6), "ipc://one"]),
    threading.Thread(target=send, args=[fl.from_range(6).map(lambda i: 10 * i), "ipc://two"]),
]
for thread in threads:
    thread.start()
pairs = fl.from_zmq("ipc://one", int).zip(fl.from_zmq("ipc://two", int))
with iter(pairs.window(3)) as run:
    print(next(run))
    print(next(run))
again = fl.from_zmq("ipc://one", int).zip(fl.from_zmq("ipc://two", int))
print(again.collect())
for thread in threads:
    thread.join()

# Seen:
# ((0, 0), (1, 10), (2, 20))
# ((1, 10), (2, 20), (3, 30))
# [(2, 20), (3, 30), (4, 40), (5, 50)]

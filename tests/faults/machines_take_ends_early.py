"""A `take` ends a pass while a buffer below it holds rows of another machine.

The rows in the buffer are not acknowledged: the sender keeps them for the next receiver.
"""

from __future__ import annotations

import threading

import flowdsl as fl

thread = threading.Thread(target=lambda: fl.from_range(6).send_zmq("ipc://wire", serve=True))
thread.start()
first = fl.from_zmq("ipc://wire", int).shuffle(buffer=6, seed=1).take(2).collect()
second = fl.from_zmq("ipc://wire", int).collect()
thread.join()
print(len(first), sorted({*first, *second}))

# Seen:
# 2 [0, 1, 2, 3, 4, 5]

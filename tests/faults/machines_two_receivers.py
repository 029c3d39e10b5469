"""A second receiver connects to a sender.

It is refused with the reason, since it would miss rows; the first one is not disturbed.
"""

from __future__ import annotations

import threading

import flowdsl as fl

sender = fl.from_range(300)
thread = threading.Thread(target=sender.send_zmq, args=["ipc://wire"], kwargs={"bind": True})
thread.start()
run = iter(fl.from_zmq("ipc://wire", int, bind=False))
next(run)
try:
    fl.from_zmq("ipc://wire", int, bind=False).collect()
except fl.SourceError as error:
    print(error)
print(len(list(run)))
thread.join()

# Seen:
# from_zmq: 'ipc://wire': the sender serves another receiver, which has acknowledged ... elements;
# it takes another only when the first has left, and with serve=True
# 299

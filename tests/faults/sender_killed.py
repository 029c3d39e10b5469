"""The machine that sends rows disappears in the middle of a pass.

The receiver does not mistake this for the end: another sender may continue. With `timeout=` the
pass ends with an error that reports the progress of each sender.
"""

from __future__ import annotations

import os
import signal
import time

import flowdsl as fl


def stop_at(i: int) -> int:
    if i == 3:
        time.sleep(60)
    return i


if (child := os.fork()) == 0:
    fl.from_range(9).map(stop_at).send_zmq("ipc://rows.sock")
rows = iter(fl.from_zmq("ipc://rows.sock", timeout=2))
print(next(rows))
os.kill(child, signal.SIGKILL)
list(rows)

# Seen:
# 0
# flowdsl.errors.SourceError: from_zmq: after ... elements, none came in 2 s at 'ipc://rows.sock',
# waiting for 1 to end; of the senders, ...: ... elements, no end, last heard ... s ago; is
# flow.send_zmq running at the other end, with a key that is known here?

"""A program commits rows of another machine after it has closed their run.

This is an error: the connection has ended, and the rows will be sent again.
"""

from __future__ import annotations

import threading

import flowdsl as fl

sender = fl.from_range(3)
threading.Thread(target=sender.send_zmq, args=["ipc://wire"], daemon=True).start()
run = iter(fl.from_zmq("ipc://wire", int, auto_commit=False))
print(next(run), next(run))
run.close()
run.commit()

# Seen:
# 0 1
# flowdsl.errors.FlowError: commit: 2 elements cannot be acknowledged, as this run was closed
# before; they are sent again to the next receiver

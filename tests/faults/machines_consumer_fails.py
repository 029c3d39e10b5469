"""A consumer fails on a row that another machine sent.

The row was not delivered, since the consumer has not asked for the next one: with `serve=True` the
next receiver begins with this row.
"""

from __future__ import annotations

import threading

import flowdsl as fl

sender = fl.from_range(5)
thread = threading.Thread(target=sender.send_zmq, args=["ipc://wire"], kwargs={"serve": True})
thread.start()
try:
    for row in fl.from_zmq("ipc://wire", int):
        print(row, 6 / (2 - row))
except ZeroDivisionError as error:
    print(error)
print(fl.from_zmq("ipc://wire", int).collect())
thread.join()

# Seen:
# 0 3.0
# 1 6.0
# division by zero
# [2, 3, 4]

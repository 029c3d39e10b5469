"""A second pass begins over rows that another machine sent.

It is an error that says how to keep the rows, and not a pass without rows.
"""

from __future__ import annotations

import threading

import flowdsl as fl

thread = threading.Thread(target=fl.from_range(3).send_zmq, args=["ipc://wire"])
thread.start()
rows = fl.from_zmq("ipc://wire", int)
print(rows.collect())
thread.join()
rows.collect()

# Seen:
# [0, 1, 2]
# flowdsl.errors.SourceError: from_zmq: what is sent comes only once, and this is a second pass; for
# several passes over the same elements put cache() after it; for other elements build the flow
# again

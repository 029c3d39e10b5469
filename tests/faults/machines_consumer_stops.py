"""A consumer stops while rows from another machine have been read ahead of it.

With `serve=True` nothing is lost: a row counts as delivered only when the consumer has asked for
the next one, so the next receiver gets all rows that batches, threads and workers had read ahead.
"""

from __future__ import annotations

import threading

import flowdsl as fl

sender = fl.from_range(1000)
thread = threading.Thread(target=sender.send_zmq, args=["ipc://wire"], kwargs={"serve": True})
thread.start()
rows = list[int]()
for limit in (10, 300, 1000):
    with iter(fl.from_zmq("ipc://wire", int).map(abs).prefetch(threads=2)) as run:
        for row in run:
            rows.append(row)
            if len(rows) == limit:
                break
    print(f"stopped after row {rows[-1]}")
thread.join()
print(rows == list(range(1000)))

# Seen:
# stopped after row 9
# stopped after row 299
# stopped after row 999
# True

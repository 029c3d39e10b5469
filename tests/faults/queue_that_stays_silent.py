"""No further elements are put into a queue.

With `timeout=` the pass ends with an error; otherwise it waits, and Ctrl-C ends it.
"""

from __future__ import annotations

import queue

import flowdsl as fl

rows = queue.Queue[int]()
rows.put(1)
for row in fl.from_queue(rows, timeout=0.1):
    print(row)

# Seen:
# 1
# flowdsl.errors.SourceError: from_queue: after 1 elements, neither another one nor the end marker
# None came in 0.1 s; is the queue still being filled?

"""The program changes a global that a function reads.

The next pass has the new value, in workers as well. A function that changes a global in a worker
changes it there only: what it counts is not what the program has.
"""

from __future__ import annotations

import flowdsl as fl

scale = 2
calls = 0


def scaled(i: int) -> int:
    global calls
    calls += 1
    return scale * i


flow = fl.from_range(3).map(scaled).prefetch(procs=1)
print(flow.collect())
scale = 3
print(flow.collect(), calls)

# Seen:
# [0, 2, 4]
# [0, 3, 6] 0

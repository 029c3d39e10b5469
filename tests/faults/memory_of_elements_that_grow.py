"""Elements become a hundred thousand times as large in the middle of a pass.

A worker returns what it has as soon as it reaches its share of `memory`, so at most
`memory + 2 * procs * e` bytes are in flight, where `e` is the size of the largest element. Here
nothing else limits them, since the consumer pauses.
"""

from __future__ import annotations

import time
from pathlib import Path

import flowdsl as fl


def grow(i: int) -> bytes:
    if i < 3000:
        return bytes(10)
    Path(f"{i} is made").touch()
    return bytes(1_000_000)


made = iter(fl.from_range(4000).map(grow).prefetch(procs=2, memory=10_000_000))
while len(next(made)) == 10:
    pass
time.sleep(0.3)
ahead = len(list(Path.cwd().iterdir()))
print("large elements in flight:", ahead if ahead > 14 else "at most 14")
print("the rest:", sum(map(len, made)))

# Seen:
# large elements in flight: at most 14
# the rest: 999000000

"""A worker is killed while a loop of PyTorch trains.

Its tasks are repeated by another worker: the loop gets each batch once, in order.
"""

from __future__ import annotations

import os
import signal

import flowdsl as fl

main = os.getpid()


def read(i: int) -> int:
    if i == 5 and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return i


for batch in fl.from_range(8).map(read).batch(2).prefetch(procs=2).to_torch():
    print(batch)

# Seen:
# tensor([0, 1])
# tensor([2, 3])
# tensor([4, 5])
# tensor([6, 7])

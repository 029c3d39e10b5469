"""Ctrl-C is pressed while a loop of PyTorch waits for a batch.

The loop ends immediately, and so do the workers, even in the middle of a task.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import flowdsl as fl


def read(i: int) -> int:
    if i > 1:
        time.sleep(60)
    return i


loader = fl.from_range(4).map(read).prefetch(procs=2).to_torch()
began = time.monotonic()
try:
    for element in loader:
        print(element)
        if element == 1:  # the next one does not come
            began = time.monotonic()
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
except KeyboardInterrupt:
    loader.close()
    print("interrupted, after less than 10 s:", time.monotonic() - began < 10)

# Seen:
# 0
# 1
# interrupted, after less than 10 s: True

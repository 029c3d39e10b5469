"""A training step waits for an element that does not arrive.

After half a minute, here a tenth of a second, a warning describes what the flow is doing, and again
after twice as long. Ctrl-C ends the wait immediately.
"""

from __future__ import annotations

import logging
import sys
import threading

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput

logging.basicConfig(stream=sys.stdout, format="%(message)s")
stopped = threading.Event()


def read(i: int) -> float:
    if i == 1:
        stopped.wait(1)
    return i / 2


with QueueInput(fl.from_range(2).map(read)) as source:
    source.patience = 0.1
    source.reset()
    source.next_args(2)

# Seen:
# QueueInput: a step has waited for 0... s, and element 1 of the pass has not arrived: the flow is
# in read, line ... of ...input_that_stalls.py
# ...

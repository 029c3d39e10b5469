"""A function in a worker returns what the program cannot load: here, an object of another library.

The error names the operator and the row. With `on_error="skip"` the other elements are delivered.
"""

from __future__ import annotations

import os
from typing import Any

import flowdsl as fl

program = os.getpid()


class Handle:
    """It can be used in the process that has made it."""

    def __init__(self, number: int) -> None:
        self.number, self.process = number, os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["process"] != os.getpid():
            raise RuntimeError("the handle belongs to another process")


def handle(i: int) -> Any:
    return Handle(i) if i == 2 else i


flow = fl.from_range(5).map(handle)
print(flow.prefetch(procs=2, on_error="skip").collect())
flow.prefetch(procs=2).collect()

# Seen:
# 1 element failed and was left out: map(handle) failed on element 2 (row 2 of
# from_range(5)): NotShippable("the element cannot be loaded by the consumer's process:
# RuntimeError('the handle belongs to another process')")
# [0, 1, 3, 4]
# flowdsl.errors.ElementError: map(handle) failed on element 2 (row 2 of from_range(5)):
# NotShippable("the element cannot be loaded by the consumer's process: RuntimeError('the handle
# belongs to another process')")

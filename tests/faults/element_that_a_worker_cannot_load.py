"""An item can be sent to a worker, and fails when it is loaded there.

The error names the row and has the exception of its class. With `on_error="skip"` the other rows
are delivered. No worker dies.
"""

from __future__ import annotations

from typing import Any

import flowdsl as fl


class Scan:
    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"Scan({self.number})"

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["number"] == 2:
            raise ValueError("the header of scan 2 is damaged")
        vars(self).update(state)


def number(scan: Scan) -> int:
    return scan.number


flow = fl.from_items([Scan(i) for i in range(5)]).map(number)
print(flow.prefetch(procs=2, on_error="skip").collect())
flow.prefetch(procs=2).collect()

# Seen:
# 1 element failed and was left out: from_items(5 items) failed on element 2 (row 2 of
# from_items(5 items)): NotShippable("the element cannot be loaded by a worker process:
# ValueError('the header of scan 2 is damaged')"); the element was Scan(2)
# [0, 1, 3, 4]
# flowdsl.errors.ElementError: from_items(5 items) failed on element 2 (row 2 of from_items(5
# items)): NotShippable("the element cannot be loaded by a worker process: ValueError('the header of
# scan 2 is damaged')")

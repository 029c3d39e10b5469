"""An element of a stream contains a lock, a generator or a connection.

The error names the element and the reason. With `on_error="skip"` the others are delivered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import flowdsl as fl


def rows() -> Iterator[dict[str, Any]]:
    for i in range(4):
        yield {"i": i, "guard": threading.Lock() if i == 1 else None}


def number(row: dict[str, Any]) -> int:
    return int(row["i"])


flow = fl.from_iterable(rows).map(number)
print(flow.collect(), flow.prefetch(procs=1, on_error="skip").collect())
flow.prefetch(procs=1).collect()

# Seen:
# 1 element failed and was left out: map(number) failed on element 1 (element 1 of
# from_iterable(rows)): TypeError("cannot pickle '_thread.lock' object"); the element was {'i': 1,
# 'guard': <unlocked _thread.lock object at ...>}
# [0, 1, 2, 3] [0, 2, 3]
# flowdsl.errors.ElementError: from_iterable(rows) failed on element 1 (element 1 of
# from_iterable(rows)): TypeError("cannot pickle '_thread.lock' object"); the element was {'i': 1,
# 'guard': <unlocked _thread.lock object at ...>}

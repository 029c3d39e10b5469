"""A function in a worker raises a group of exceptions, one of which cannot be pickled.

The group arrives with all its members; what cannot be sent is replaced by its name and text.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def check(i: int) -> int:
    if i == 2:
        raise ExceptionGroup("two checks", [ValueError("size"), KeyError(threading.Lock())])
    return i


try:
    fl.from_range(4).map(check).prefetch(procs=1).collect()
except fl.ElementError as error:
    group = error.__cause__
    assert isinstance(group, ExceptionGroup)
    print(group, [type(part).__name__ for part in group.exceptions])

# Seen:
# two checks (2 sub-exceptions) ['ValueError', 'RuntimeError']

"""A function exits, or raises what is not an error.

`SystemExit`, `KeyboardInterrupt` and asyncio's `CancelledError` end the run as themselves, wherever
the function runs and whatever `on_error` says, with a note that names operator and row. An exit is
logged, since Python prints nothing about it.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError

import flowdsl as fl


def exit_at_three(i: int) -> int:
    return i if i < 3 else sys.exit(7)


def cancel_at_three(i: int) -> int:
    if i == 3:
        raise CancelledError
    return i


for workers in (0, 2):
    try:
        fl.from_range(10).map(exit_at_three).prefetch(procs=workers, on_error="skip").collect()
    except SystemExit as end:
        print("status", end.code)
    try:
        fl.from_range(10).map(cancel_at_three).prefetch(procs=workers).collect()
    except CancelledError as end:
        print("cancelled:", end.__notes__[-1])

# Seen:
# map(exit_at_three) raised SystemExit(7) on element 3 (row 3 of from_range(10))
# status 7
# cancelled: raised by map(cancel_at_three) on element 3 (row 3 of from_range(10))
# map(exit_at_three) raised SystemExit(7) on element 3 (row 3 of from_range(10))
# status 7
# cancelled: raised by map(cancel_at_three) on element 3 (row 3 of from_range(10))

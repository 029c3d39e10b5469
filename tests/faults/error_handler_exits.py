"""The function that handles errors ends the program: `prefetch(on_error=...)` calls `sys.exit`.

The elements before the failure have been delivered, the exit is raised where the program iterates,
and the workers end.
"""

from __future__ import annotations

import sys

import flowdsl as fl


def invert(i: int) -> float:
    return 1 / (i - 2)


def give_up(error: fl.ElementError) -> None:
    sys.exit(f"given up: {error}")


made: list[float] = []
try:
    made.extend(fl.from_range(5).map(invert).prefetch(procs=1, on_error=give_up))
except SystemExit as end:
    print(made, end)

# Seen:
# [-0.5, -1.0] given up: map(invert) failed on element 2 (row 2 of from_range(5)):
# ZeroDivisionError('division by zero'); the element was 2

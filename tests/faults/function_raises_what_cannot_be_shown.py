"""A function raises an exception that cannot be shown: its `__repr__` fails, or it contains itself.

The error names operator and row as for any exception, here and in a worker, and with
`on_error="skip"` the other rows are delivered.
"""

from __future__ import annotations

from typing import NoReturn

import flowdsl as fl


class Shy(Exception):
    def __repr__(self) -> NoReturn:
        raise ValueError("no text")


def fails(i: int) -> int:
    if i == 1:
        raise Shy
    if i == 2:
        endless = ValueError()
        endless.args = (endless,)
        raise endless
    return i


for workers in (0, 1):
    errors: list[fl.ElementError] = []
    print(fl.from_range(4).map(fails).prefetch(procs=workers, on_error=errors.append).collect())
    print(*errors, sep="\n")

# Seen:
# 2 elements failed and were left out, the first: map(fails) failed on element 1 (row 1 of
# from_range(4)): Shy, whose repr raised ValueError; the element was 1
# [0, 3]
# map(fails) failed on element 1 (row 1 of from_range(4)): Shy, whose repr raised ValueError; the
# element was 1
# map(fails) failed on element 2 (row 2 of from_range(4)): ValueError, whose repr raised
# RecursionError; the element was 2
# 2 elements failed and were left out, the first: map(fails) failed on element 1 (row 1 of
# from_range(4)): Shy, whose repr raised ValueError; the element was 1
# [0, 3]
# map(fails) failed on element 1 (row 1 of from_range(4)): Shy, whose repr raised ValueError; the
# element was 1
# map(fails) failed on element 2 (row 2 of from_range(4)): RuntimeError('ValueError: its text cannot
# be read: str() raised RecursionError'); the element was 2

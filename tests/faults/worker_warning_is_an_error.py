"""The program makes warnings errors, and a function warns.

Filters of warnings apply in workers too. The error names the row; with `on_error="skip"` the other
rows are delivered.
"""

from __future__ import annotations

import warnings

import flowdsl as fl


def check(i: int) -> int:
    if i == 1:
        warnings.warn("a suspicious row", stacklevel=2)
    return i


warnings.simplefilter("error", UserWarning)
print(fl.from_range(3).map(check).prefetch(procs=1, on_error="skip").collect())
fl.from_range(3).map(check).prefetch(procs=1).collect()

# Seen:
# 1 element failed and was left out: map(check) failed on element 1 (row 1 of
# from_range(3)): UserWarning('a suspicious row'); the element was 1
# [0, 2]
# flowdsl.errors.ElementError: map(check) failed on element 1 (row 1 of from_range(3)):
# UserWarning('a suspicious row'); the element was 1

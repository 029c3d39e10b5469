"""A function fails on one element.

The error names the operator, the element and its row; the cause is the function's own exception,
with its traceback, also from a worker.
"""

from __future__ import annotations

import flowdsl as fl

rows = fl.from_items([4, 2, 0, 1]).map(lambda x: 8 / x)
print(rows.prefetch(procs=2, on_error="skip").collect())
rows.prefetch(procs=2).collect()

# Seen:
# 1 element failed and was left out: map(<lambda>) failed on element 2 (row 2 of
# from_items(4 items)): ZeroDivisionError('division by zero'); the element was 0
# [2.0, 4.0, 8.0]
# flowdsl.errors.ElementError: map(<lambda>) failed on element 2 (row 2 of from_items(4 items)):
# ZeroDivisionError('division by zero'); the element was 0

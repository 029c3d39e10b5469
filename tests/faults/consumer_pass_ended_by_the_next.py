"""A loop continues a pass after the next one has begun.

This raises an error instead of ending the pass: one pass of a loader is open at a time.
"""

from __future__ import annotations

import flowdsl as fl

loader = fl.from_range(4).to_torch()
first = iter(loader)
print(next(first))
print(next(iter(loader)))
next(first)

# Seen:
# 0
# 0
# flowdsl.errors.FlowError: to_torch: this pass was stopped; begin another one

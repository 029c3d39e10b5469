"""A program loops over one epoch several times, where it means several epochs.

`for x in flow` is always epoch 0, so each loop has the same order and the same random numbers. The
second one warns, once, with the line to write.
"""

from __future__ import annotations

import warnings

import flowdsl as fl

warnings.showwarning = lambda message, category, *_: print(f"{category.__name__}: {message}")
numbers = fl.from_range(5).shuffle(seed=1)
for _ in range(3):
    print(list(numbers))
print([list(run) for run in numbers.epochs(3)])

# Seen:
# [2, 1, 3, 4, 0]
# SameEpoch: this is the second loop over a flow that ends in shuffle(seed=1) and whose epochs
# differ, and each of them is epoch 0: the same order and the same random numbers again; for one
# epoch after another write 'for run in flow.epochs(n): for x in run: ...', and for the same one
# flow.epoch(0)
# [2, 1, 3, 4, 0]
# [2, 1, 3, 4, 0]
# [[2, 1, 3, 4, 0], [0, 4, 3, 1, 2], [2, 4, 0, 1, 3]]

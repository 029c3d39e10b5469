"""A tensor is to view read-only memory, such as a mapped file.

The memory is copied, and a step may write into its copy: the file never changes. With `copy=False`
an error is raised instead.
"""

from __future__ import annotations

import numpy as np

import flowdsl as fl

np.save("rows.npy", np.zeros((2, 3), np.float32))
for row in fl.from_npy("rows.npy").to_torch():
    print(row.add_(1))
print(np.load("rows.npy").max())
next(iter(fl.from_npy("rows.npy").to_torch(copy=False)))

# Seen:
# tensor([1., 1., 1.])
# tensor([1., 1., 1.])
# 0.0
# flowdsl.errors.SpecMismatch: to_torch: element 0, an array of float32, cannot be a tensor: its
# memory is read-only, so it has to be copied, and copy=False was given

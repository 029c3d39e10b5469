"""An array has a dtype that PyTorch does not have.

The error names the component, the element and the dtype, and is raised at the position of the
element.
"""

from __future__ import annotations

import numpy as np

import flowdsl as fl

rows = [{"at": np.float32(1)}, {"at": np.datetime64("2026-01-01")}]
for row in fl.from_items(rows).to_torch():
    print(row)

# Seen:
# {'at': tensor(1.)}
# flowdsl.errors.SpecMismatch: to_torch: component 'at' of element 1, an array of datetime64[D],
# cannot be a tensor: PyTorch has no such dtype; map it to another one

"""A row fails in a worker while a loop of PyTorch trains on the rows before it.

The batches before it are delivered. Then the error is raised in the loop, and names the row; it is
never mistaken for the end of the epoch.
"""

from __future__ import annotations

import flowdsl as fl


def read(i: int) -> float:
    return 1 / (i - 5)


loader = fl.from_range(8).map(read).batch(2).prefetch(procs=2).to_torch()
for batch in loader:
    print("a step with", batch)

# Seen:
# a step with tensor([-0.2000, -0.2500], dtype=torch.float64)
# a step with tensor([-0.3333, -0.5000], dtype=torch.float64)
# flowdsl.errors.ElementError: map(read) failed on element 5 (row 5 of from_range(8)):
# ZeroDivisionError('division by zero'); the element was 5

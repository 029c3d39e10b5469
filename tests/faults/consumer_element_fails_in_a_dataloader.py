"""An element fails in a worker of a DataLoader, over `as_iterable_dataset`.

The elements before it are delivered. PyTorch raises a `RuntimeError` with the traceback of the
worker, whose last line names the operator, the element and its row.
"""

from __future__ import annotations

from torch.utils.data import DataLoader

import flowdsl as fl


def read(i: int) -> float:
    return 1 / (i - 3)


dataset = fl.from_range(6).map(read).as_iterable_dataset()
try:
    for element in DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context="fork"
    ):
        print(f"{element:.2f}")
except RuntimeError as error:
    first, *_, last = str(error).strip().splitlines()
    print(first, last, sep="\n")

# Seen:
# -0.33
# -0.50
# -1.00
# Caught ElementError in DataLoader worker process 1.
# flowdsl.errors.ElementError: map(read) failed on element 3 (row 3 of from_range(6)):
# ZeroDivisionError('division by zero'); the element was 3

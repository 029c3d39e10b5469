"""The result of `to_torch` is passed to a DataLoader with workers.

This is refused, since each worker would yield all elements again. The error suggests a correction.
"""

from __future__ import annotations

from torch.utils.data import DataLoader

import flowdsl as fl

loader = DataLoader(
    fl.from_range(4).to_torch(), batch_size=None, num_workers=1, multiprocessing_context="fork"
)
try:
    list(loader)
except fl.InvalidFlow as error:
    print(str(error).splitlines()[-1])

# Seen:
# flowdsl.errors.InvalidFlow: to_torch: each worker of a DataLoader would yield all elements once
# more; write flow.as_iterable_dataset(), which divides them among the workers, or num_workers=0 and
# .prefetch(procs=n) in the flow

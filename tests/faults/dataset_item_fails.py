"""An item of a PyTorch dataset cannot be read.

The error names the item, and its cause is the exception of the dataset, also from a worker. With
`on_error="skip"` the other items are delivered.
"""

from __future__ import annotations

from torch.utils.data import Dataset

import flowdsl as fl


class Files(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise OSError("the file is cut off")
        return index


items = fl.from_dataset(Files())
print(items.prefetch(procs=1, on_error="skip").collect())
items.batch(2).prefetch(procs=1).collect()

# Seen:
# 1 element failed and was left out: from_dataset(Files, 4 items) failed on element 2
# (row 2 of from_dataset(Files, 4 items)): OSError('the file is cut off')
# [0, 1, 3]
# flowdsl.errors.ElementError: from_dataset(Files, 4 items) failed on element 2 (row 2 of
# from_dataset(Files, 4 items)): OSError('the file is cut off')

"""A dataset has fewer items than its length says.

The items that exist are delivered, and then the error names the first one that does not. The
`IndexError` is not mistaken for the end.
"""

from __future__ import annotations

from torch.utils.data import Dataset

import flowdsl as fl


class Numbers(Dataset[int]):
    items = (10, 11, 12)

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        return self.items[index]


for number in fl.from_dataset(Numbers()):
    print(number)

# Seen:
# 10
# 11
# 12
# flowdsl.errors.ElementError: from_dataset(Numbers, 5 items) failed on element 3 (row 3 of
# from_dataset(Numbers, 5 items)): IndexError('tuple index out of range')

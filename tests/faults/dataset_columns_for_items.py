"""`__getitems__` of a dataset returns the columns of a batch, and not a list of items.

Its items are then read one by one. A column is never mistaken for an item, even where there are as
many columns as items to read.
"""

from __future__ import annotations

from torch.utils.data import Dataset

import flowdsl as fl


class Squares(Dataset[tuple[int, int]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> tuple[int, int]:
        return i, i * i

    def __getitems__(self, numbers: list[int]) -> tuple[list[int], list[int]]:
        return numbers, [i * i for i in numbers]


print(fl.from_dataset(Squares()).collect())

# Seen:
# [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16), (5, 25)]

"""A function changes an element that `repeat_each` or a window yields more than once.

Each copy of the element is changed once, however the elements are divided among workers.
"""

from __future__ import annotations

import flowdsl as fl


def counted(i: int) -> list[int]:
    return [i]


def change(x: list[int]) -> list[int]:
    x.append(len(x))
    return x


def change_each(window: tuple[list[int], ...]) -> list[list[int]]:
    return [change(x) for x in window]


rows = fl.from_range(3).map(counted)
for workers in (0, 2):
    print(rows.repeat_each(2).map(change).prefetch(procs=workers).collect())
    print(rows.window(2).map(change_each).prefetch(procs=workers).collect())

# Seen:
# [[0, 1], [0, 1], [1, 1], [1, 1], [2, 1], [2, 1]]
# [[[0, 1], [1, 1]], [[1, 1], [2, 1]]]
# [[0, 1], [0, 1], [1, 1], [1, 1], [2, 1], [2, 1]]
# [[[0, 1], [1, 1]], [[1, 1], [2, 1]]]

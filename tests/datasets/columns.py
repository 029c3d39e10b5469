"""A dataset, in a module without a library of datasets: a worker imports it in no time."""

from __future__ import annotations

from typing import Any


class Columns:
    """A dataset with columns: it counts how its items are read."""

    def __init__(self, n: int = 500, bad: int = -1) -> None:
        self.n, self.bad = n, bad
        self.single: list[int] = []
        self.many: list[list[int]] = []

    def __len__(self) -> int:
        return self.n

    def item(self, i: int) -> dict[str, int]:
        if i == self.bad:
            raise ValueError(f"item {i} is damaged")
        return {"i": i, "square": i * i}

    def __getitem__(self, i: int) -> dict[str, int]:
        self.single.append(i)
        return self.item(i)

    def __getitems__(self, numbers: list[int]) -> list[dict[str, int]]:
        self.many.append(numbers)
        return [self.item(i) for i in numbers]


def summed(row: dict[str, Any]) -> tuple[Any, Any]:
    """Return the sum of an image and its label: here, since a worker imports its module."""
    return row["image"].sum(), row["label"]

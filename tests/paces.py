"""How large leases are, at a whim: their size is the runtime's to choose, and shows nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from unittest import mock

from hypothesis import strategies as st

from flowdsl.workers.leases import Pace


class Whim(Pace):
    """A pace without reason."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(2)
        self._whims = cycle(sizes)

    def size(self, remaining: int | None) -> int:
        return next(self._whims)


whims = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@contextmanager
def paced(sizes: list[int]) -> Iterator[None]:
    """Every pool that starts in here has leases of these sizes, in turn."""
    with mock.patch("flowdsl.workers.pool.Pace", side_effect=lambda *_: Whim(sizes)):
        yield

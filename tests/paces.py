"""Arbitrary task sizes and numbers of workers, which must not affect any element."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from unittest import mock

from hypothesis import strategies as st

from flowdsl.workers.task_sizer import TaskSizer
from flowdsl.workers.tuner import Span, Tuner


class Whim(TaskSizer):
    """A task sizer with arbitrary sizes."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(2)
        self._whims = cycle(sizes)

    def size(self, remaining: int | None) -> int:
        return next(self._whims)


whims = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@contextmanager
def paced(sizes: list[int]) -> Iterator[None]:
    """Use tasks of these sizes, cyclically, in every pool that starts in the block."""
    with mock.patch("flowdsl.workers.pool.TaskSizer", side_effect=lambda *_: Whim(sizes)):
        yield


@contextmanager
def tuned(numbers: list[int]) -> Iterator[None]:
    """Use these numbers of workers, cyclically, in every tuner in the block."""
    coming = cycle(numbers)

    def observe(self: Tuner, span: Span, in_flight: int) -> None:
        assert min(span.seconds, span.waited, span.outside, span.worked, in_flight) >= 0
        self.count = next(coming)

    with mock.patch.object(Tuner, "observe", observe):
        yield

"""Readings: the rows of an operator in one pass, closed when they are no longer needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Self

import attrs

from flowdsl.errors import ElementError, FlowError
from flowdsl.nodes import Row
from flowdsl.plan.tree import Step

_END = object()


class Reading(chain[Row[Any]]):
    """The rows of an operator in one pass, closed as soon as they are no longer needed.

    The problem: a generator over a file or a socket releases it in a ``finally`` clause, which runs
    when the generator is closed or collected. Relying on collection fails if user code keeps an
    exception: its traceback refers to the frame of the run, and so keeps the generator alive. The
    choice: a run closes its readings explicitly when it ends; before that, each reading closes its
    rows when nothing refers to the reading any more.
    """

    # A subclass of chain, which iterates in C.

    __slots__ = ("__weakref__", "_failed", "_rows")
    _rows: Any
    _failed: Callable[[Exception], None]

    def __new__(cls, rows: Iterator[Row[Any]], failed: Callable[[Exception], None]) -> Self:
        """``failed`` is called with any exception that closing the rows raises."""
        rows = rows if hasattr(rows, "close") else _closable(rows)
        reading = super().__new__(cls, rows)
        reading._rows, reading._failed = rows, failed
        return reading

    def close(self) -> None:
        """Close the rows; no further rows are produced."""
        try:
            self._rows.close()
        except Exception as error:
            if isinstance(error, ValueError) and str(error) == "generator already executing":
                return  # another thread waits for an element in it, and then closes it
            self._failed(error)

    def __del__(self) -> None:
        self.close()


def _closable(rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
    """Wrap the rows in a generator, which can be closed."""
    yield from rows


def record_closing_error(step: Step, errors: list[FlowError], error: Exception) -> None:
    """Record that a generator of an operator raised an error as it was closed."""
    message = f"{step.node.title} failed as it was closed: {error!r}"
    if isinstance(error, ElementError):  # its message names the operator already
        message = f"{error}; it was being closed"
    closing_error = FlowError(message)
    closing_error.__cause__ = error
    errors.append(closing_error)


@attrs.define
class TimeSpent:
    """The number of rows read from a channel, and the total time spent reading them."""

    calls: int = 0
    seconds: float = 0.0

    def timed(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """Yield the same rows; add the time spent on each to ``seconds``."""
        clock = time.perf_counter
        while True:
            began = clock()
            try:
                row = next(rows, _END)
            finally:
                self.seconds += clock() - began
            if row is _END:
                return
            self.calls += 1
            yield row  # type: ignore[misc]  # it is a row, since it is not the end

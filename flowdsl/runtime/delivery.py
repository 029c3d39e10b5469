"""Delivery: which rows of a source a run has delivered to its consumer.

The problem: a source of messages acknowledges its rows, and the other end forgets them. A run reads
ahead: operators buffer elements, threads and workers hold them. If rows were acknowledged when they
are read, a consumer that stops would lose all that was read ahead.

The choice: a row counts as delivered once the consumer is finished with every element that was made
from it. Between two elements of the run, each channel answers how many rows of the source nothing
else can be made from than what it has yielded (``delivered_by``):

- Most operators in the consumer's thread hold nothing between two elements, so their answer is the
  answer of their source. Some need the last few elements that they read (``Node.looks_back``), so
  theirs is what their source answered before these.
- A buffer such as ``shuffle`` yields the elements in another order. They are numbered as they enter
  it and counted as they leave it.
- Threads and pools read ahead, so each row that they read is noted with the answer below it.

Any other operator delivers all of its rows at the end of the pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import attrs

from flowdsl.nodes import POSITION_LIMIT, AnyNode, PassFactory, Receipts, Row, Traceable, Traced

Delivered: TypeAlias = Callable[[], int]
"""Returns the number of rows of a source, from the first, that are delivered with the last row."""


@attrs.define(eq=False)
class RowNotes:
    """Notes, with each row that is read ahead, how many rows of a source are delivered with it."""

    rows_below: PassFactory
    delivered: Delivered | None = None
    """The answer of the channel below; None if no source needs it."""
    _noted: deque[int] = attrs.field(factory=deque[int])
    _first: int = 0
    """The number of the row of the first note."""

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Read a pass; runs in the thread that reads ahead."""
        if self.delivered is None:
            return self.rows_below(epoch)
        return self._noting(epoch, self.delivered)

    def _noting(self, epoch: int, delivered: Delivered) -> Iterator[Row[Any]]:
        rows = self.rows_below(epoch)
        while (row := next(rows, None)) is not None:
            self._noted.append(delivered())
            yield row
            del row  # the consumer releases it first

    def after(self, count: int) -> int:
        """Return how many rows of the source are delivered with the first ``count`` rows."""
        while self._first < count - 1 and len(self._noted) > 1:
            self._noted.popleft()
            self._first += 1
        return self._noted[0] if self._first < count and self._noted else 0


@attrs.define(eq=False)
class LookingBack:
    """Reads the source of an operator that needs the last rows that it read."""

    delivered: Delivered
    rows: int
    _before: deque[int] = attrs.field(init=False)
    """What was delivered before each of these rows was read."""

    def __attrs_post_init__(self) -> None:
        self._before = deque(maxlen=self.rows)

    def reading(self, source: PassFactory) -> PassFactory:
        def read(epoch: int) -> Iterator[Row[Any]]:
            rows = source(epoch)
            while True:
                before = self.delivered()
                if (row := next(rows, None)) is None:
                    self._before.clear()  # it has made all of its elements of the last rows
                    return
                self._before.append(before)
                yield row

        return read

    def __call__(self) -> int:
        return self._before[0] if self._before else self.delivered()


@attrs.define(eq=False)
class OutOfOrder:
    """Numbers the rows that enter an operator, and counts those that have left it."""

    delivered: Delivered
    _answers: deque[int] = attrs.field(factory=deque[int])
    """What is delivered with each row, from number ``_first`` on."""
    _first: int = 0
    _left: set[int] = attrs.field(factory=set[int])
    """The numbers of rows from ``_first`` on that have left the operator."""
    _answer: int = 0

    def reading(self, source: PassFactory) -> PassFactory:
        def read(epoch: int) -> Iterator[Row[Any]]:
            for position, x in source(epoch):
                self._answers.append(self.delivered())
                yield position, Traced(x, (self._first + len(self._answers) - 1,))

        return read

    def leaving(self, rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
        """Yield the elements as they are without numbers."""
        for position, x in rows:
            if isinstance(x, Traced):
                self._left.update(x.places)
                yield position, x.element
            else:
                yield position, x

    def __call__(self) -> int:
        while self._first in self._left:
            self._left.remove(self._first)
            self._answer = self._answers.popleft()
            self._first += 1
        return self._answer


Tracking: TypeAlias = LookingBack | OutOfOrder


def tracking_of(node: AnyNode, delivered: Delivered) -> Tracking | None:
    """Return what tracks the rows of a source through an operator; None if nothing can."""
    if node.looks_back is not None:
        return LookingBack(delivered, node.looks_back)
    return OutOfOrder(delivered) if isinstance(node, Traceable) else None


@attrs.define(eq=False)
class Follower:
    """Reports to a source what the consumer is finished with."""

    receipts: Receipts
    delivered: Delivered
    _noted: deque[tuple[int, int]] = attrs.field(factory=deque[tuple[int, int]])
    """The number of each element that is not committed, and what is delivered with it."""

    def note(self, position: int) -> None:
        """Note the element that the consumer is about to get, the ``position``-th."""
        self._noted.append((position, self.delivered()))

    def commit(self, position: int) -> None:
        """Report that the consumer is finished with the first ``position`` elements."""
        delivered = None
        while self._noted and self._noted[0][0] <= position:
            _, delivered = self._noted.popleft()
        if delivered is not None:
            self.receipts.report(delivered)

    def complete(self) -> None:
        """Report that the consumer is finished with all elements, after the end of the pass."""
        self.commit(POSITION_LIMIT)
        if self.receipts.exhausted:  # else it is the end of a ``take``, say
            self.receipts.report(self.receipts.yielded)

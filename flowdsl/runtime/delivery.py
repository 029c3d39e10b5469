"""Delivery: which rows of a source a run has delivered to its consumer.

The problem: a source of messages acknowledges its rows, and the other end forgets them. A run reads
ahead: operators buffer elements, threads and workers hold them. If rows were acknowledged when they
are read, a consumer that stops would lose all that was read ahead.

The choice: a row counts as delivered once the consumer is finished with every element that was made
from it. Between two elements of the run, each channel answers how many rows at the beginning of the
source are used up, so that no later element can be made from them (``follow``):

- Most operators in the consumer's thread hold nothing between two elements, so their answer is the
  answer of their source. Some need the last few elements that they read (``Node.looks_back``), so
  they repeat what their source answered before these.
- Some know which rows they may still use (``Retaining``), such as windows of several streams. Their
  answer is what their source answered before the first of these.
- A buffer such as ``shuffle`` yields the elements in another order. They are numbered as they enter
  it and counted as they leave it.
- Threads and pools read ahead, so each row that they read is noted with the answer below it.

A filter may drop any number of consecutive rows. If only functions and filters are above the source
or its workers, these rows are reported while the consumer waits for its next element.

Any other operator delivers all of its rows at the end of the pass. That end counts only if each
operator above the source has read its own source to the end: a ``take`` may end a pass while rows
are still in the buffers below it.

A run may have several such sources. Each is followed on its own, so a channel has one answer per
source that it reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import attrs

from flowdsl.nodes import POSITION_LIMIT, PassFactory, Receipts, Retained, Row, Traced

A = TypeVar("A")


@attrs.define(eq=False)
class WholePass:
    """Notes whether a reader has reached the end of a pass."""

    reached: bool = False

    def reading(self, source: PassFactory) -> PassFactory:
        """Return the source, which sets ``reached`` at the end of a pass."""

        def read(epoch: int) -> Iterator[Row[Any]]:
            yield from source(epoch)
            self.reached = True

        return read


@attrs.frozen(eq=False)
class Delivered:
    """What a channel has delivered of a source's rows, between two rows of the channel."""

    count: Callable[[], int]
    """Returns how many rows at the beginning of the source are delivered."""
    ends: tuple[WholePass, ...] = ()
    """The ends of the passes that the operators between the source and this channel read."""

    def after(self, count: Callable[[], int], end: WholePass) -> Delivered:
        """Return what an operator above the channel has delivered, which answers ``count()``.

        It reads the channel to ``end``.
        """
        return Delivered(count, (*self.ends, end))

    @property
    def is_complete(self) -> bool:
        """True if all of these operators have read their sources to the end."""
        return all(end.reached for end in self.ends)


@attrs.define(eq=False)
class RowNotes:
    """Notes the answers of the channel below after rows that a thread reads ahead from it."""

    rows_below: PassFactory
    end: WholePass = attrs.field(factory=WholePass)
    """Whether the thread has read the pass to its end."""
    every: int = 1
    """The number of rows from one note to the next."""
    leave_out: int = 0
    """The number of rows at the start of the first pass that are left out."""
    is_resumed: Callable[[], bool] = lambda: False
    """Returns True if the operators below are about to begin at places of a state."""
    _answers: list[Callable[[], Any]] = attrs.field(factory=list[Callable[[], Any]])
    """Return the answers to note."""
    _noted: deque[tuple[int, tuple[Any, ...]]] = attrs.field(factory=deque[Any])
    """The notes, the oldest first: a number of rows, and the answers after that many rows."""

    def follow(
        self, answer: Callable[[], A], rows_delivered: Callable[[], int]
    ) -> Callable[[], tuple[A, int] | None]:
        """Note what ``answer`` returns; return a function that looks it up.

        The function returns the last answer that was noted after rows that are all delivered, and
        the number of rows delivered since. It returns None before the pass has begun.
        """
        index = len(self._answers)
        self._answers.append(answer)
        return lambda: self._after(rows_delivered(), index)

    def delivered(self, below: Delivered, rows_delivered: Callable[[], int]) -> Delivered:
        """Return what is delivered of a source if ``rows_delivered()`` rows of this pass are."""
        noted = self.follow(below.count, rows_delivered)
        return below.after(lambda: found[0] if (found := noted()) else below.count(), self.end)

    def begin(self) -> None:
        """Forget the last pass, before the thread that reads the next one starts."""
        self._noted.clear()

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        """Read a pass; runs in the thread that reads ahead."""
        leave_out, self.leave_out = self.leave_out, 0
        rows = self._noting(epoch, -leave_out) if self._answers else self.rows_below(epoch)
        return islice(rows, leave_out, None) if leave_out else rows

    def _noting(self, epoch: int, number: int) -> Iterator[Row[Any]]:
        """Read a pass, and note the answers; ``number`` is the number of its first row."""
        # The operators below still answer for the previous pass until they begin the next one. In
        # a resumed run they have the places of the state before they begin, and not afterwards.
        is_resumed = self.is_resumed()
        if is_resumed:
            self._note(number)
        rows = self.rows_below(epoch)
        if not is_resumed:
            self._note(number)
        while True:
            yield from islice(rows, self.every - 1)
            row = next(rows, None)
            if row is None:
                self.end.reached = True
                return
            number += self.every
            self._note(number)
            yield row
            del row  # else this frame would keep the row alive

    def _note(self, number: int) -> None:
        self._noted.append((number, tuple(answer() for answer in self._answers)))

    def _after(self, count: int, index: int) -> tuple[Any, int] | None:
        """Return an answer that was noted after at most ``count`` rows, and the rows since."""
        while len(self._noted) > 1 and self._noted[1][0] <= count:
            self._noted.popleft()
        if not self._noted:
            return None
        number, answers = self._noted[0]
        return answers[index], count - number


@attrs.define(eq=False)
class LookingBack:
    """Reads the source of an operator that needs the last rows that it read."""

    count: Callable[[], int]
    """The answer of the source."""
    rows: int
    """The number of rows that the operator needs."""
    _before: deque[int] = attrs.field(init=False)
    """The answers of the source before each of these rows was read."""

    def __attrs_post_init__(self) -> None:
        self._before = deque(maxlen=self.rows)

    def reading(self, source: PassFactory) -> PassFactory:
        """Return the source, whose answer is noted before each row."""

        def read(epoch: int) -> Iterator[Row[Any]]:
            rows = source(epoch)
            while True:
                before = self.count()
                if (row := next(rows, None)) is None:
                    return
                self._before.append(before)
                yield row

        return read

    def forget_at_end(self) -> Iterator[Row[Any]]:
        """Yield nothing, after the operator's last element: it needs no rows any more."""
        self._before.clear()
        yield from ()

    def __call__(self) -> int:
        """Return the operator's answer."""
        return self._before[0] if self._before else self.count()


@attrs.define(eq=False)
class StillUsed:
    """Reads the source of an operator that knows which rows it may still use.

    A thread may read the source while the consumer asks for the answer.
    """

    count: Callable[[], int]
    """The answer of the source."""
    retained: Retained
    _before: deque[Row[int]] = attrs.field(factory=deque[Row[int]])
    """The position of each row that may still be used, and the source's answer before it."""
    _coming: int | None = None
    """The source's answer before the row that is being read; None while none is being read."""

    def reading(self, source: PassFactory) -> PassFactory:
        """Return the source, whose answer is noted before each row."""

        def read(epoch: int) -> Iterator[Row[Any]]:
            self.retained.first = 0
            rows = source(epoch)
            while True:
                self._coming = before = self.count()
                if (row := next(rows, None)) is None:
                    self._coming = None
                    return
                self._before.append((row[0], before))
                self._coming = None
                yield row
                del row  # else this frame would keep the row alive

        return read

    def forget_at_end(self) -> Iterator[Row[Any]]:
        """Yield nothing, after the operator's last element: it needs no rows any more."""
        self._before.clear()
        yield from ()

    def __call__(self) -> int:
        """Return the operator's answer."""
        before, first = self._before, self.retained.first
        # In this order: a row that the source's answer counts is then in `before`, or `_coming`
        # is set, even if another thread reads it just now.
        count, coming = self.count(), self._coming
        while before and before[0][0] < first:
            before.popleft()
        if before:
            return before[0][1]
        return count if coming is None else coming


@attrs.define(eq=False)
class OutOfOrder:
    """Numbers the rows that enter an operator from a source, and counts those that have left it.

    A thread may read the source while the consumer asks for answers.
    """

    _counts: list[Callable[[], int]] = attrs.field(factory=list[Callable[[], int]])
    """The answers of the channel below, one for each source that is followed."""
    _answers: deque[tuple[int, ...]] = attrs.field(factory=deque[tuple[int, ...]])
    """What ``_counts`` answered when each row was read, from row ``_first`` on."""
    _entered: int = 0
    """The number of rows that have entered; only the reader of the source changes it."""
    _first: int = 0
    """The number of the first row that has not left the operator."""
    _left: set[int] = attrs.field(factory=set[int])
    """The numbers of later rows that have left it."""
    _answer: tuple[int, ...] = ()
    """The answers for the rows before ``_first``."""

    def follow(self, count: Callable[[], int]) -> Callable[[], int]:
        """Return the operator's answer for a source; ``count`` is the answer below it."""
        index = len(self._counts)
        self._counts.append(count)
        self._answer += (0,)
        return lambda: self._current_answer()[index]

    def reading(self, source: PassFactory) -> PassFactory:
        """Return the source, with each row numbered."""

        def read(epoch: int) -> Iterator[Row[Any]]:
            for position, x in source(epoch):
                self._answers.append(tuple(count() for count in self._counts))
                number, self._entered = self._entered, self._entered + 1
                yield position, Traced(x, ((self, number),))

        return read

    def leave(self, number: int) -> None:
        """Count a row that has left."""
        self._left.add(number)

    def _current_answer(self) -> tuple[int, ...]:
        while self._first in self._left:
            self._left.remove(self._first)
            self._answer = self._answers.popleft()
            self._first += 1
        return self._answer


def without_numbers(rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
    """Yield the elements of an operator without their numbers, and count each as having left."""
    for position, x in rows:
        if isinstance(x, Traced):
            for entered, number in x.places:
                entered.leave(number)
            yield position, x.element
        else:
            yield position, x


@attrs.define(eq=False)
class Follower:
    """Reports to a source what the consumer is finished with."""

    receipts: Receipts
    delivered: Delivered
    _noted: deque[tuple[int, int]] = attrs.field(factory=deque[tuple[int, int]])
    """The number of each element that is not committed, and the rows delivered with it."""

    def note(self, position: int) -> None:
        """Note the element that the consumer is about to get, the ``position``-th."""
        self._noted.append((position, self.delivered.count()))

    def commit(self, position: int) -> None:
        """Report that the consumer is finished with the first ``position`` elements."""
        delivered = None
        while self._noted and self._noted[0][0] <= position:
            _, delivered = self._noted.popleft()
        if delivered is not None:
            self.receipts.report(delivered)

    def left_out(self) -> None:
        """Report the rows that were dropped since the last element, while the consumer waits.

        Nothing is reported while the consumer has not committed an element that it has.
        """
        if not self._noted:
            self.receipts.report(self.delivered.count())

    def commit_all(self) -> None:
        """Report that the consumer is finished with all elements, after the end of the pass."""
        self.commit(POSITION_LIMIT)
        # Otherwise an operator such as `take` has ended the pass before the end of the source.
        if self.receipts.exhausted and self.delivered.is_complete:
            self.receipts.report(self.receipts.yielded)

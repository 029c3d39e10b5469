"""Delivery: which rows of a source a run has delivered to its consumer.

The problem: a source of messages acknowledges its rows, and the other end forgets them. A run reads
ahead: operators buffer elements, threads and workers hold them. If rows were acknowledged when they
are read, a consumer that stops would lose all that was read ahead.

The choice: a row counts as delivered once the consumer is finished with every element that was made
from it. Between two elements of the run, each channel answers how many rows at the beginning of
each partition of the source are used up, so that no later element can be made from them
(``follow``). The rows of one sender are a partition: a row that is held back does not hold back the
rows of other senders.

- Most operators in the consumer's thread hold nothing between two elements, so their answer is the
  answer of their source. Some need the last few elements that they read (``Node.looks_back``), so
  they repeat what their source answered before these.
- Some know which rows they may still use: windows of several streams (``Retaining``), and buffers
  such as ``shuffle``, whose rows are traced until they leave it. In each partition, their answer is
  what their source answered before the first of these rows that was made from this partition.
- Threads and pools read ahead, so each row that they read is noted with the answer below it.

To know the partitions that a row was made from, a channel also answers for the row that it yielded
last (``Delivered.latest``). Functions, filters and ``flat_map`` make it from one row below them. Of
other operators it is only known that they made it from rows which were not used up before it, and
were read when it came.

A filter may drop any number of consecutive rows, and a ``flat_map`` may make no element of them. If
only functions and filters are above the source or its workers, or such operators above the source,
these rows are reported while the consumer waits for its next element.

Any other operator delivers all of its rows at the end of the pass. That end counts only if each
operator above the source has read its own source to the end: a ``take`` may end a pass while rows
are still in the buffers below it.

A run may have several such sources. Each is followed on its own, so a channel has one answer per
source that it reads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import Any, TypeAlias, TypeVar

import attrs

from flowdsl.nodes import POSITION_LIMIT, Offsets, PassFactory, Receipts, Retained, Row, Traced

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


Latest: TypeAlias = tuple[Offsets | None, Offsets]
"""The begin and the end of a range of offsets in each partition, from which the last row of a
channel was made. The begin is None if it is unknown: then the range may have any row that was not
used up."""


@attrs.frozen(eq=False)
class Delivered:
    """The rows of a source that a channel has delivered, between two rows of the channel."""

    used_up: Callable[[], Offsets]
    """Returns how many rows at the beginning of each partition are delivered."""
    latest: Callable[[], Latest]
    """Returns what the last row of the channel was made from, in the thread that reads it."""
    ends: tuple[WholePass, ...] = ()
    """The ends of the passes that the operators between the source and this channel read."""

    def after(self, used_up: Callable[[], Offsets], end: WholePass, one_to_one: bool) -> Delivered:
        """Return what an operator above the channel has delivered, which answers ``used_up()``.

        It reads the channel to ``end``. With ``one_to_one``, it makes each row from the row that it
        read last.
        """
        latest = self.latest if one_to_one else lambda: (None, self.latest()[1])
        return Delivered(used_up, latest, (*self.ends, end))

    @property
    def is_complete(self) -> bool:
        """True if all of these operators have read their sources to the end."""
        return all(end.reached for end in self.ends)


@attrs.define(eq=False)
class RowNotes:
    """Notes the answers of the channel below after rows that a thread reads ahead from it."""

    rows_below: PassFactory
    end: WholePass = attrs.field(factory=WholePass)
    """True if the thread has read the pass to its end."""
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
    # The consumer looks up answers, and so may the thread of an operator that reads ahead.
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def follow(
        self, answer: Callable[[], A], rows_delivered: Callable[[], int]
    ) -> Callable[[], tuple[A, int] | None]:
        """Note what ``answer`` returns; return a function that looks it up.

        The function returns the last answer that was noted after rows that are all delivered, and
        the number of rows delivered since. It returns None before the pass has begun.
        """
        index = len(self._answers)
        self._answers.append(answer)
        return lambda: self._after(rows_delivered, index)

    def delivered(
        self, below: Delivered, rows_delivered: Callable[[], int], one_to_one: bool
    ) -> Delivered:
        """Return what is delivered of a source if ``rows_delivered()`` rows of this pass are.

        With ``one_to_one``, the channel makes its last row from the last of these.
        """
        noted = self.follow(lambda: (below.used_up(), below.latest()), rows_delivered)

        def used_up() -> Offsets:
            return found[0][0] if (found := noted()) else below.used_up()

        def latest() -> Latest:
            if one_to_one and (found := noted()) and not found[1]:
                return found[0][1]
            return None, below.latest()[1]

        return Delivered(used_up, latest, (*below.ends, self.end))

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

    def _after(self, rows_delivered: Callable[[], int], index: int) -> tuple[Any, int] | None:
        """Return an answer that was noted after at most the delivered rows, and the rows since."""
        with self._lock:
            count = rows_delivered()
            while len(self._noted) > 1 and self._noted[1][0] <= count:
                self._noted.popleft()
            if not self._noted:
                return None
            number, answers = self._noted[0]
            return answers[index], count - number


@attrs.define(eq=False)
class LookingBack:
    """Reads the source of an operator that needs the last rows that it read."""

    used_up: Callable[[], Offsets]
    """The answer of the source."""
    rows: int
    """The number of rows that the operator needs."""
    _before: deque[Offsets] = attrs.field(init=False)
    """The answers of the source before each of these rows was read."""

    def __attrs_post_init__(self) -> None:
        self._before = deque(maxlen=self.rows)

    def reading(self, source: PassFactory) -> PassFactory:
        """Return the source, whose answer is noted before each row."""

        def read(epoch: int) -> Iterator[Row[Any]]:
            rows = source(epoch)
            while True:
                before = self.used_up()
                if (row := next(rows, None)) is None:
                    return
                self._before.append(before)
                yield row

        return read

    def forget_at_end(self) -> Iterator[Row[Any]]:
        """Yield nothing, after the operator's last element: it needs no rows any more."""
        self._before.clear()
        yield from ()

    def __call__(self) -> Offsets:
        """Return the operator's answer."""
        return self._before[0] if self._before else self.used_up()


@attrs.define(eq=False)
class _Held:
    """The rows of a channel that an operator may still use, in each partition of a source.

    A thread may read the channel while the consumer asks for the answer.
    """

    below: Delivered
    """The answers of the channel."""
    retained: Retained
    _coming: Offsets | None = None
    """The rows used up before the row that is being read; None while none is being read."""
    _rows: list[deque[tuple[int, int]]] = attrs.field(factory=list[Any])
    """In each partition, the position of each row made from it, and the offset before that row."""
    # The consumer asks for the answer, and so may the thread of an operator that reads ahead.
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def expect(self) -> None:
        """Note that a row is about to be read."""
        self._coming = self.below.used_up()

    def add(self, position: int) -> bool:
        """Note the row that was read; return True if it was made from rows of the source."""
        first, end = self.below.latest()
        begins = self._coming if first is None else first
        assert begins is not None, "a row that was not expected"
        while len(self._rows) < len(end):
            self._rows.append(deque())
        is_of_source = False
        for rows, offset, stop in zip(self._rows, chain(begins, repeat(0)), end, strict=False):
            if offset < stop:
                rows.append((position, offset))
                is_of_source = True
        self._coming = None
        return is_of_source

    def expect_no_more(self) -> None:
        """Note that the channel has ended."""
        self._coming = None

    def forget(self) -> None:
        """Forget all rows."""
        with self._lock:
            for rows in self._rows:
                rows.clear()

    def __call__(self) -> Offsets:
        """Return the operator's answer."""
        # In this order: a row that the source's answer counts is then in ``_rows``, or ``_coming``
        # is set, even if another thread reads it just now.
        used_up, coming = self.below.used_up(), self._coming
        with self._lock:
            first_held = map(self._first_held, self._rows)
            return tuple(map(min, used_up if coming is None else coming, first_held))

    def _first_held(self, rows: deque[tuple[int, int]]) -> int:
        """Return the offset before the first row of a partition that is held."""
        held, first = self.retained.held, self.retained.first
        while rows and ((position := rows[0][0]) < first or position not in held):
            rows.popleft()
            held.discard(position)
        return rows[0][1] if rows else POSITION_LIMIT


@attrs.define(eq=False)
class StillUsed:
    """Reads the source of an operator of which it is known which rows it may still use."""

    traces: bool
    """True if the operator passes on traced rows, so that a row is released when it leaves it."""
    retained: Retained = attrs.field(factory=lambda: Retained(is_followed=True))
    _held: list[_Held] = attrs.field(factory=list[_Held])
    """The rows that are held, for each source that is followed."""

    def follow(self, below: Delivered) -> Callable[[], Offsets]:
        """Return the operator's answer for a source; ``below`` is the answer of its channel."""
        self._held.append(held := _Held(below, self.retained))
        return held

    def reading(self, source: PassFactory) -> PassFactory:
        """Return the source, which notes each row as held."""

        def read(epoch: int) -> Iterator[Row[Any]]:
            self.retained.first = 0
            rows = source(epoch)
            traces = self.traces
            while True:
                for held in self._held:
                    held.expect()
                if (row := next(rows, None)) is None:
                    break
                self.retained.held.add(row[0])
                made_from = [held.add(row[0]) for held in self._held]
                if not any(made_from):
                    self.retained.release(row[0])
                if traces:
                    row = row[0], Traced(row[1], ((self.retained, row[0]),))
                yield row
                del row  # else this frame would keep the row alive
            for held in self._held:
                held.expect_no_more()

        return read

    def forget_at_end(self) -> Iterator[Row[Any]]:
        """Yield nothing, after the operator's last element: it needs no rows any more."""
        for held in self._held:
            held.forget()
        yield from ()


def releasing(rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
    """Yield the elements of an operator untraced, and release the rows of each."""
    for position, x in rows:
        if isinstance(x, Traced):
            for retained, number in x.places:
                retained.release(number)
            yield position, x.element
        else:
            yield position, x


@attrs.define(eq=False)
class Follower:
    """Reports to a source what the consumer is finished with."""

    receipts: Receipts
    delivered: Delivered
    _noted: deque[tuple[int, Offsets]] = attrs.field(factory=deque[tuple[int, Offsets]])
    """The number of each element that is not committed, and the rows delivered with it."""

    def note(self, position: int) -> None:
        """Note the element that the consumer is about to get, the ``position``-th."""
        self._noted.append((position, self.delivered.used_up()))

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
            self.receipts.report(self.delivered.used_up())

    def all_read(self) -> None:
        """Report all rows of a source that is asked for another, by operators that hold none."""
        if not self._noted:
            self.receipts.report(self.receipts.yielded_of)

    def commit_all(self) -> None:
        """Report that the consumer is finished with all elements, after the end of the pass."""
        self.commit(POSITION_LIMIT)
        # Otherwise an operator such as `take` has ended the pass before the end of the source.
        if self.receipts.exhausted and self.delivered.is_complete:
            self.receipts.report(self.receipts.yielded_of)

"""Resuming an operator that holds rows of several keys, such as a batch of each key.

The problem: which rows such an operator holds depends on all earlier rows, since any of their keys
may come again. If a resume read the pass again from its first row, it would compute everything
below the operator again. Saving the rows is not possible either: they may be any objects, of any
size.

The choice: a state says which rows were held, with a bit for each row from the first held row to
the last row that was read. The pass begins again at a mark before the first held row. The operator
receives the held rows again, but not the others, which it has already yielded or left out.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Generic

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.nodes import ELEMENTS_PER_RESTART, A, PassFactory, Positions, Restarts, Row

_MOST_BYTES = 150
"""A limit of the bytes for the held rows in a state: enough for about 1,100 rows without a pattern,
and for many more rows if nearly all of them or nearly none are held, as the bits are compressed."""
_MOST_BITS = 1 << 22
"""A limit of the positions from the first held row to the last row: half a megabyte of bits."""
_MOST_MARKS = 1024


@attrs.define(eq=False)
class HeldRows(Generic[A]):
    """A pass over the rows of the source; it notes which of them the operator holds."""

    source: PassFactory
    restarts: Restarts
    positions: Callable[[], Sequence[int]]
    """Returns the positions of the rows that the operator holds."""
    is_reading_again: bool = attrs.field(default=False, init=False)
    """True while the pass reads the rows that were read before the state was saved."""
    _marks: deque[tuple[int, object]] = attrs.field(factory=deque[tuple[int, object]], init=False)
    """Positions of rows, and the marks from before these were read."""

    def rows(self, epoch: int) -> Iterator[Row[A]]:
        """Yield the rows that were held, if the pass is resumed, and then the later ones."""
        offset = self.restarts.offset  # the packed bits of ``_note``, or 0
        mark = self.restarts.mark()  # before ``self.source`` begins the passes of operators below
        self.restarts.note(mark, self.restarts.yielded, offset)
        rows = self.source(epoch)
        if not mark:  # the run notes no restarts
            yield from rows
            return
        if offset:
            yield from self._held_again(rows, mark, _held_in(offset))
            mark = self.restarts.mark()
        # Of ``every`` rows, the mark from before the first is kept, and after the last a restart is
        # noted. Each turn of the loop reads one of these two; ``islice`` reads the rows between.
        every, is_first = ELEMENTS_PER_RESTART, True
        while (row := next(rows, None)) is not None:
            position = row[0]
            yield row
            del row  # the operator alone decides how long it is kept
            if is_first:
                self._add(position, mark)
                yield from islice(rows, every - 2)
            else:
                mark = self.restarts.mark()
                every = max(ELEMENTS_PER_RESTART, self._note(mark, position + 1))
            is_first = not is_first

    def _held_again(
        self, rows: Iterator[Row[A]], mark: object, held: NDArray[np.bool_]
    ) -> Iterator[Row[A]]:
        """Yield the held rows among the first ``len(held)`` rows; ``held`` is True for these."""
        first, last = 0, len(held) - 1  # the position of the first row, and the last index in held
        self.is_reading_again = True
        for number, (position, x) in enumerate(rows):
            if not number:
                self._add(position, mark)
                first = position
            if held[position - first]:
                yield position, x
            if position - first == last:
                break
        self.is_reading_again = False

    def _add(self, position: int, mark: object) -> None:
        """Add the mark from before the row at this position."""
        self._marks.append((position, mark))
        if len(self._marks) > _MOST_MARKS:  # a row that is held for long needs no near mark
            self._marks = deque(islice(self._marks, 0, None, 2))

    def _note(self, mark: object, end: int) -> int:
        """Note the rows held before the position ``end``.

        Return the least number of rows until the next note: the longer a note takes, the more rows;
        and four times that number if the held rows did not fit in a state.
        """
        if not (positions := self.positions()):
            self._marks.clear()
            self.restarts.note(mark)
            return 0
        held = np.array(positions, np.int64)
        oldest, marks = held.min(), self._marks
        while len(marks) > 1 and marks[1][0] <= oldest:
            marks.popleft()
        first, mark = marks[0]
        extent = end - first
        wait = max(2 * len(positions), extent >> 6)
        # A bit for each row needs positions that ascend, and not too many of them.
        if first <= oldest and held.max() < end and extent <= _MOST_BITS:
            offset = _packed_bits(held - first, extent)
            if offset.bit_length() <= 8 * _MOST_BYTES:
                self.restarts.note(mark, offset=offset)
                return wait
        return 4 * wait


def _packed_bits(held: Positions, count: int) -> int:
    """Return one number for ``count`` rows; those with the numbers ``held`` are held.

    >>> _held_in(_packed_bits(np.array([1, 2]), 4)).tolist()
    [False, True, True, False]
    """
    bits = np.zeros(count + 1, np.bool_)
    bits[held] = bits[count] = True  # the last bit marks the end
    return int.from_bytes(zlib.compress(np.packbits(bits).tobytes(), 9))


def _held_in(offset: int) -> NDArray[np.bool_]:
    """Return the bits that ``_packed_bits`` packed: True for each held row."""
    packed = zlib.decompress(offset.to_bytes((offset.bit_length() + 7) // 8))
    bits = np.unpackbits(np.frombuffer(packed, np.uint8))
    return bits[: bits.nonzero()[0][-1]].astype(np.bool_)

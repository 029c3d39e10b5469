"""Places: the progress of each operator of a pass, so that a resume repeats no work.

The problem: a run that resumes at element n of a pass must not compute the n elements before it.
If every element can be computed from its position, the position n is enough. Above a filter it is
not: the position of an element does not determine its row, so a run that knows only n would have to
repeat the pass and discard n elements.

The choice: a state also records a place for each operator, from the last one of the flow down to
the part that is read by position. A batch records the number of batches it has yielded, a
``repeat`` also the number of its pass, and the part read by position its next row. These operators
do not read ahead, so their places all belong to the last element delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from operator import length_hint
from typing import TypeAlias, TypeVar

import attrs

from flowdsl.nodes import POSITION_LIMIT, AnyNode, Elementwise, Identity, Resumable

A = TypeVar("A")

Place: TypeAlias = tuple[int, int]
"""Two numbers: the operator's pass, counted within one pass of the operator above, and the number
of elements yielded in that pass; for the part read by position, the second is its next position.
"""

_MAX_PLACES = 6
"""A flow with more places than this records none, so that its state stays small."""


@attrs.frozen
class ResumePoint:
    """The places of a pass after a certain element."""

    delivered: int
    """The number of elements delivered so far."""
    places: tuple[Place, ...] = ()
    """The places of the operators, the last operator of the flow first; empty if not known."""

    def numbers(self) -> list[int]:
        """Return the resume point as a state stores it: a list of integers."""
        return [self.delivered, *(n for place in self.places for n in place)] if self.places else []

    @classmethod
    def of(cls, numbers: Sequence[int]) -> ResumePoint:
        """Return the resume point from the integers that ``numbers()`` returned."""
        delivered, *rest = numbers
        return cls(delivered, tuple(zip(rest[::2], rest[1::2], strict=True)))


BEGINNING = ResumePoint(0)


def resumable_path(node: AnyNode) -> tuple[AnyNode, ...]:
    """Return the operators of a flow that have a place, the last one first, wherever they run.

    Empty if the position of an element is enough to resume, or if some operator cannot resume from
    a place.
    """
    end, placed = node, list[AnyNode]()
    while not node.indexable:
        if isinstance(node, Resumable):
            placed.append(node)
        elif not passes_on(node):
            return ()
        (node,) = node.sources
    return (*placed, node) if node is not end and len(placed) < _MAX_PLACES else ()


def passes_on(node: AnyNode) -> bool:
    """Return True if an operator has no place of its own, but always the place of its source."""
    return isinstance(node, Identity | Elementwise) and not isinstance(node, Resumable)


@attrs.define
class OperatorProgress:
    """The place of an operator while a run is under way."""

    begins_at: Place | None = None
    """The place at which a resumed run begins; None once it has begun."""
    below: OperatorProgress | None = None
    """The progress of the next operator below that has a place."""
    _number: int = -1
    """The number of the current pass within one pass of the operator above; -1 before the first."""
    _skipped: int = 0
    """Elements of the current pass that were delivered before the resume, so are not counted."""
    _to_come: Iterator[bool] = attrs.field(factory=lambda: repeat(True, POSITION_LIMIT))

    def begin(self) -> tuple[int, int]:
        """Begin a pass: return the elements to leave out and the number of the source's pass.

        An operator such as ``repeat`` begins many passes of the operators below it, and only the
        first of them is the one that the state interrupted. If every pass began at the place of
        the state, the later ones would lose their first elements. So ``begins_at`` is used once.
        Every other pass begins at its first element, and clears the places below: their passes
        count from 0 again, even if the operator below never used its place.
        """
        self._to_come = repeat(True, POSITION_LIMIT)
        if self.begins_at is not None:
            (self._number, self._skipped), self.begins_at = self.begins_at, None
            source_place = self.below.begins_at if self.below is not None else None
            return self._skipped, source_place[0] if source_place is not None else 0
        self._number, self._skipped = self._number + 1, 0
        if self.below is not None:
            self.below._number, self.below.begins_at = -1, None
        return 0, 0

    def counted(self, rows: Iterator[A]) -> Iterator[A]:
        """Count the rows at almost no cost: each takes one True from ``_to_come``."""
        return compress(rows, self._to_come)

    def place(self, position: int | None = None) -> Place:
        """Return the operator's place; ``position`` replaces the count of elements kept here."""
        if position is None:
            position = self._skipped + POSITION_LIMIT - length_hint(self._to_come)
        return max(0, self._number), position  # -1 if the operator above never read an element

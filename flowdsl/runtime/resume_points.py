"""Places: where the operators of a pass stand, so that a resume makes no element again.

Where every element can be made from its position, the position is enough to resume. Above a filter
the position does not tell the row. Then each operator from the end of the flow down to the part
that is read by position states its place, if it can resume from one: a batch the number of batches
it has made, a ``repeat`` its pass as well, and the part read by position its next row. None of
these operators reads ahead, so each stands at the element that was delivered last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from operator import length_hint
from typing import TypeAlias, TypeVar

import attrs

from flowdsl.nodes import MOST_ELEMENTS, AnyNode, Elementwise, Identity, Resumable

A = TypeVar("A")

Place: TypeAlias = tuple[int, int]
"""Two numbers: an operator's pass, counted within one pass of the operator above, and the elements
it has given in that pass; for the part that is read by position, the second is its next position.
"""

_MOST_PLACES = 6
"""A flow with more places than this keeps none, so that its state stays small."""


@attrs.frozen
class ResumePoint:
    """Where a pass stood after a certain element."""

    delivered: int
    """The number of elements delivered by then."""
    places: tuple[Place, ...] = ()
    """The places of the operators, the last operator of the flow first; empty if not known."""

    def numbers(self) -> list[int]:
        """The mark as a state holds it: a list of integers."""
        return [self.delivered, *(n for place in self.places for n in place)] if self.places else []

    @classmethod
    def of(cls, numbers: Sequence[int]) -> ResumePoint:
        """The mark that ``numbers()`` gave these integers for."""
        delivered, *rest = numbers
        return cls(delivered, tuple(zip(rest[::2], rest[1::2], strict=True)))


BEGINNING = ResumePoint(0)


def resumable_path(node: AnyNode) -> tuple[AnyNode, ...]:
    """The operators of a flow that have a place, the last one first, wherever they run.

    Empty if the position of an element is enough to resume, or if numbers are not enough for some
    operator to resume from.
    """
    end, placed = node, list[AnyNode]()
    while not node.indexable:
        if isinstance(node, Resumable):
            placed.append(node)
        elif not passes_on(node):
            return ()
        (node,) = node.sources
    return (*placed, node) if node is not end and len(placed) < _MOST_PLACES else ()


def passes_on(node: AnyNode) -> bool:
    """Whether an operator has no place of its own and stands where its source does."""
    return isinstance(node, Identity | Elementwise) and not isinstance(node, Resumable)


@attrs.define
class OperatorProgress:
    """Where an operator stands while a run is under way."""

    begins_at: Place | None = None
    """The place at which a resumed run begins; None once it has begun."""
    below: OperatorProgress | None = None
    _number: int = -1
    _given: int = 0
    """Elements of the current pass that were given before counting began."""
    _to_come: Iterator[bool] = attrs.field(factory=lambda: repeat(True, MOST_ELEMENTS))

    def begin(self) -> tuple[int, int]:
        """Begin a pass; gives the elements to leave out and the pass of the operator below."""
        self._to_come = repeat(True, MOST_ELEMENTS)
        if self.begins_at is not None:
            (self._number, self._given), self.begins_at = self.begins_at, None
            over = self.below.begins_at if self.below is not None else None
            return self._given, over[0] if over is not None else 0
        self._number, self._given = self._number + 1, 0
        if self.below is not None:  # its passes count from 0 again; its last may not be used up
            self.below._number, self.below.begins_at = -1, None
        return 0, 0

    def counted(self, rows: Iterator[A]) -> Iterator[A]:
        """The rows, counted at almost no cost: each takes one True from ``_to_come``."""
        return compress(rows, self._to_come)

    def place(self, given: int | None = None) -> Place:
        """The operator's place; ``given`` replaces the count of elements kept here."""
        if given is None:
            given = self._given + MOST_ELEMENTS - length_hint(self._to_come)
        return max(0, self._number), given  # -1 if the operator above never asked for an element

"""Places: where the operators of a pass stand, so that it goes on without making anything again.

Where every element can be made from its position, a pass goes on by that alone. Above a filter the
position tells nothing of the row. Then each operator on the way from the end of the flow down to
what is read by number says where it stands, if it can go on from there: a batch by how many it has
made, a ``repeat`` by its pass, too, and what is read by number by the row that comes next. Nobody
reads ahead on that way, so each stands at what was delivered last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from operator import length_hint
from typing import TypeAlias, TypeVar

import attrs

from flowdsl.arguments import MOST_ELEMENTS
from flowdsl.capabilities import Continuing
from flowdsl.kinds import Aside, Elementwise
from flowdsl.node import AnyNode

A = TypeVar("A")

Place: TypeAlias = tuple[int, int]
"""Of an operator: the number of its pass, in one pass of the operator above, and how many elements
it has given in it; of what is read by number, which has all positions, the one that comes next."""

_MOST_PLACES = 6
"""A state of more would be no small one."""


@attrs.frozen
class Mark:
    """Where a pass stood after some element."""

    delivered: int
    """How many elements had been."""
    places: tuple[Place, ...] = ()
    """Of the operators on the way, the uppermost first; empty where they are not known."""

    def numbers(self) -> list[int]:
        """The mark as a state holds it: a list of integers."""
        return [self.delivered, *(n for place in self.places for n in place)] if self.places else []

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Mark:
        """The mark of these numbers."""
        delivered, *rest = numbers
        return cls(delivered, tuple(zip(rest[::2], rest[1::2], strict=True)))


BEGINNING = Mark(0)


def way(node: AnyNode) -> tuple[AnyNode, ...]:
    """The operators of a flow that have a place, the uppermost first, wherever they run.

    There are none where the position of an element is enough, and none where some operator has more
    to go on from than numbers.
    """
    end, placed = node, list[AnyNode]()
    while not node.indexable:
        if isinstance(node, Continuing):
            placed.append(node)
        elif not passes_on(node):
            return ()
        (node,) = node.sources
    return (*placed, node) if node is not end and len(placed) < _MOST_PLACES else ()


def passes_on(node: AnyNode) -> bool:
    """It has nothing of its own to go on from: it stands where its source does."""
    return isinstance(node, Aside | Elementwise) and not isinstance(node, Continuing)


@attrs.define
class Standing:
    """Where an operator of a run stands, on the way through it."""

    begins_at: Place | None = None
    """Where a run that goes on begins."""
    below: Standing | None = None
    _number: int = -1
    _given: int = 0
    """In the pass under way, before those that are counted."""
    _to_come: Iterator[bool] = attrs.field(factory=lambda: repeat(True, MOST_ELEMENTS))

    def begin(self) -> tuple[int, int]:
        """A pass over it begins: after how many elements, and in which pass of what is below."""
        self._to_come = repeat(True, MOST_ELEMENTS)
        if self.begins_at is not None:
            (self._number, self._given), self.begins_at = self.begins_at, None
            over = self.below.begins_at if self.below is not None else None
            return self._given, over[0] if over is not None else 0
        self._number, self._given = self._number + 1, 0
        if self.below is not None:  # its passes are counted anew, and the last may not be used up
            self.below._number, self.below.begins_at = -1, None
        return 0, 0

    def counted(self, rows: Iterator[A]) -> Iterator[A]:
        """The rows, counted at no cost: a True is taken for each."""
        return compress(rows, self._to_come)

    def place(self, given: int | None = None) -> Place:
        """Where it stands; ``given`` is what was not counted here."""
        if given is None:
            given = self._given + MOST_ELEMENTS - length_hint(self._to_come)
        return max(0, self._number), given  # what is above it may never have asked for any

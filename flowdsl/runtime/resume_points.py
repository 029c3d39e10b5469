"""Places: the progress of each operator of a pass, so that a resume repeats no work.

The problem: a run that resumes at element n of a pass must not compute the n elements before it.
If every element can be computed from its position, the position n is enough. Above a filter it is
not: the position of an element does not determine its row, so a run that knows only n would have to
repeat the pass and discard n elements.

The choice: a state also records a place for each operator, from the last one of the flow down to
the part that is read by position. A batch records the number of batches it has yielded, a
``repeat`` also the number of its pass, and the part read by position its next row. Most of these
operators hold nothing between two elements, so their places all belong to the last element
delivered.

A few do hold something: ``flat_map`` is in the midst of the rows of one element, and ``window``
keeps the last elements that it read. Their state may be any Python object, so it is not saved.
They note where they could begin again instead (``Restarts``), and the places of the operators below
are the places at that moment. A resume computes the elements since then again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice, repeat
from operator import length_hint
from typing import Any, NamedTuple, TypeAlias, TypeVar

import attrs

from flowdsl.nodes import (
    ELEMENTS_PER_RESTART,
    POSITION_LIMIT,
    AnyNode,
    Elementwise,
    Identity,
    PassFactory,
    Restartable,
    Restarts,
    Resumable,
    Row,
)
from flowdsl.resources.any_depth import any_depth

A = TypeVar("A")
T = TypeVar("T")

Place: TypeAlias = tuple[int, ...]
"""Two numbers: the operator's pass, counted within one pass of the operator above, and the number
of elements yielded in that pass; for the part read by position, the second is its next position.

The place of a ``Restartable`` operator that is not indexable has four numbers: its pass, the
elements yielded before the last restart, the elements yielded since then, which a resume computes
again, and a number of any size that the operator itself has chosen.
"""

Places: TypeAlias = tuple[Place, ...]
"""The places of the operators of ``resumable_path``, in its order."""

_MOST_READ = 8
"""The maximum number of elements that an operator such as ``flat_map`` reads from one restart to
the next; fewer if it yields more than ``ELEMENTS_PER_RESTART`` elements from them. To note a
restart costs a microsecond or two, more than many functions; so a resume computes some elements
again."""

_MAX_PLACES = 16
"""A flow with more places than this records none, so that its state stays small."""


@attrs.frozen
class ResumePoint:
    """The places of a pass after a certain element."""

    delivered: int
    """The number of elements delivered so far."""
    places: Places = ()
    """The places of the operators; empty if not known."""

    def numbers(self) -> list[int]:
        """Return the resume point as a state stores it: a list of integers."""
        if not self.places:
            return []
        return [
            self.delivered,
            *(small for place in self.places for n in place for small in _encoded(n)),
        ]

    @classmethod
    def of(cls, numbers: Sequence[int], path: Sequence[AnyNode]) -> ResumePoint:
        """Return the resume point of operators from the integers that ``numbers()`` returned.

        Raises:
            ValueError: There are more or fewer integers than these operators have.
        """
        delivered, *rest = numbers
        sizes = [4 if has_restart(node) else 2 for node in path]
        integers = list(_decoded(iter(rest)))
        if len(integers) != sum(sizes):
            raise ValueError(f"expected {sum(sizes)} integers, got {len(integers)}")
        remaining = iter(integers)
        return cls(delivered, tuple(tuple(islice(remaining, size)) for size in sizes))


BEGINNING = ResumePoint(0)

_DIGIT_BASE = 1 << 61
"""Each integer of a state is below twice this, as checkpoints may keep them in 64 bits."""


def _encoded(number: int) -> list[int]:
    """Return small integers for a number of any size.

    A number below ``_DIGIT_BASE`` is itself. A larger one is ``_DIGIT_BASE`` plus the number of its
    digits, then the digits.

    >>> numbers = [*_encoded(7), *_encoded(10**40), *_encoded(_DIGIT_BASE)]
    >>> list(_decoded(iter(numbers))) == [7, 10**40, _DIGIT_BASE]
    True
    """
    if number < _DIGIT_BASE:
        return [number]
    digits = list[int]()
    while number:
        number, digit = divmod(number, _DIGIT_BASE)
        digits.append(digit)
    return [_DIGIT_BASE + len(digits), *digits]


def _decoded(integers: Iterator[int]) -> Iterator[int]:
    """Yield the numbers that ``_encoded`` has encoded."""
    for first in integers:
        if first < _DIGIT_BASE:
            yield first
        else:
            digits = list(islice(integers, first - _DIGIT_BASE))
            yield sum(digit * _DIGIT_BASE**k for k, digit in enumerate(digits))


def places_from(place: Place, nodes: Sequence[AnyNode]) -> Iterator[Place]:
    """Yield the places of operators of an indexable flow, from the place of the first of them."""
    for node in nodes:
        pass_number, yielded = place
        if isinstance(node, Restartable):
            before, position = node.restart_point(yielded)
            yield pass_number, before, yielded - before, 0
            place = 0, position
        else:
            assert isinstance(node, Resumable)
            yield place
            place = node.source_position(yielded)
    yield place


def places_after(places: Places, rows: int) -> Places:
    """Return the places after ``rows`` more rows of the first operator.

    Only the places of a ``Restartable`` operator change: it counts rows from its restart point. Of
    any other operator, the places are noted after each row of its channel. If there are rows after
    the latest note, they are a part of an element, which is read again as a whole.
    """
    if not rows or not places or len(places[0]) == 2:  # it has no restart
        return places
    (number, yielded, again, offset), *below = places
    return (number, yielded, again + rows, offset), *below


def resumable_path(node: AnyNode) -> tuple[AnyNode, ...]:
    """Return the operators of a flow that have a place, wherever they run.

    They are in depth-first order: an operator comes before its sources, and all operators of its
    first source before those of the second. Each branch ends with the part that is read by
    position. Empty if the position of an element is enough to resume, or if some operator cannot
    resume from a place.
    """
    if node.indexable:
        return ()
    placed = list[AnyNode]()
    return tuple(placed) if _add_placed(node, placed) else ()


@any_depth
def _add_placed(node: AnyNode, placed: list[AnyNode]) -> bool:
    """Add the operators that have a place; return False if there are too many or one has none."""
    while not node.indexable:
        if isinstance(node, Resumable | Restartable):
            placed.append(node)
        elif not passes_on(node):
            return False
        if len(placed) + len(node.sources) > _MAX_PLACES:
            return False
        first, *others = node.sources
        if others:
            return all(_add_placed(source, placed) for source in node.sources)
        node = first
    placed.append(node)
    return len(placed) <= _MAX_PLACES


def has_restart(node: AnyNode) -> bool:
    """Return True if the place of an operator is a restart, and not only a number of elements."""
    return isinstance(node, Restartable) and not node.indexable


def passes_on(node: AnyNode) -> bool:
    """Return True if an operator has no place of its own, but always the place of its source."""
    return isinstance(node, Identity | Elementwise) and not isinstance(node, Resumable)


class _Restart(NamedTuple):
    """A position at which a ``Restartable`` operator can begin again."""

    yielded: int
    """The number of elements yielded before it."""
    offset: int
    """The number that the operator has chosen."""
    places_below: Places


@attrs.define(eq=False)
class OperatorProgress(Restarts):
    """The place of an operator while a run is under way."""

    begins_at: Place | None = None
    """The place at which a resumed run begins; None once it has begun."""
    below: list[OperatorProgress] = attrs.field(factory=list["OperatorProgress"])
    """The progress of the next operator below that has a place, in each source."""
    places_below: Callable[[], Places] | None = None
    """Returns the places of the operators below; None if the operator notes no restarts."""
    _number: int = -1
    """The number of the current pass within one pass of the operator above; -1 before the first."""
    _skipped: int = 0
    """Elements of the current pass that were delivered before the resume, so are not counted."""
    _to_come: Iterator[bool] = attrs.field(factory=lambda: repeat(True, POSITION_LIMIT))
    """A True for each element that may follow: ``counted`` takes one per element, in C."""
    _restart: _Restart | None = None
    """The last restart of the current pass."""

    def begin(self) -> tuple[int, int]:
        """Begin a pass: return the elements to leave out and the number of the source's pass.

        An operator such as ``repeat`` begins many passes of the operators below it, and only the
        first of them is the one that the state interrupted. If every pass began at the place of
        the state, the later ones would lose their first elements. So ``begins_at`` is used once.
        Every other pass begins at its first element, and clears the places below: their passes
        count from 0 again, even if the operator below never used its place.
        """
        self._to_come, self._restart = repeat(True, POSITION_LIMIT), None
        if self.begins_at is not None:
            self._number, self._skipped, *_ = self.begins_at
            self.begins_at = None
            source_place = self.below[0].begins_at if self.below else None
            source_pass = 0 if source_place is None else source_place[0]
            return self._skipped, source_pass
        self._number, self._skipped = self._number + 1, 0
        waiting = [*self.below]
        while waiting:
            below = waiting.pop()
            below._number, below._skipped, below._to_come = -1, 0, repeat(True, POSITION_LIMIT)
            below.begins_at = below._restart = None
            waiting += below.below
        return 0, 0

    @property
    def has_begun(self) -> bool:
        """True if the operator was read since the operator above began its pass."""
        return self._number >= 0 and self.begins_at is None

    def begin_again(self) -> tuple[Restarts, int]:
        """Begin a pass of a ``Restartable`` operator at its restart.

        Return where the operator notes later restarts, and the number of elements since the restart
        that are to be left out.
        """
        _, _, again, self.offset = self.begins_at or (0, 0, 0, 0)
        self.yielded, _ = self.begin()
        restarts = Restarts(self.yielded, self.offset) if self.places_below is None else self
        return restarts, again

    def counted(self, rows: Iterator[A]) -> Iterator[A]:
        """Count the rows at almost no cost: each takes one True from ``_to_come``."""
        return compress(rows, self._to_come)

    def place(self, position: int | None = None) -> Place:
        """Return the operator's place; ``position`` replaces the count of elements kept here."""
        if not self.has_begun:
            number, yielded, *restart = self.begins_at or (0, 0)
            since_restart = restart[0] if restart else 0
            return number, yielded + since_restart
        return self._number, self._yielded if position is None else position

    def places_at(self, position: int | None) -> Places:
        """Return the place of the part that is read by position; empty if ``position`` is None."""
        if self.has_begun and position is None:
            return ()
        return (self.place(position),)

    def places(self) -> Places:
        """Return the places of a ``Restartable`` operator and of those below; empty if unknown."""
        assert self.places_below is not None
        if self._restart is None:
            below = self.places_below()
            place = self.begins_at or (*self.place(), 0, 0)
        else:
            yielded, offset, below = self._restart
            place = self._number, yielded, self._yielded - yielded, offset
        return (place, *below) if below else ()

    def mark(self) -> Places:
        return () if self.places_below is None else self.places_below()

    def note(self, mark: object, yielded: int | None = None, offset: int = 0) -> None:
        assert isinstance(mark, tuple)
        self._restart = _Restart(self._yielded if yielded is None else yielded, offset, mark)

    def before_each(self, source: PassFactory) -> PassFactory:
        def read(epoch: int) -> Iterator[Row[Any]]:
            if (places_below := self.places_below) is None:
                yield from source(epoch)
                return
            mark = places_below()  # before the operators below begin their passes
            rows, block, yielded = source(epoch), 1, self._yielded
            while (row := next(rows, None)) is not None:
                self._restart = _Restart(yielded, 0, mark)
                yield row
                del row  # else this frame would keep the row alive
                yield from islice(rows, block - 1)
                before, yielded = yielded, self._yielded
                of_block = max(1, yielded - before)
                block = max(1, min(_MOST_READ, block * ELEMENTS_PER_RESTART // of_block))
                mark = places_below()

        return read

    def marked(self, source: PassFactory, epoch: int) -> Iterator[tuple[Places, Row[Any]]]:
        mark = self.mark()  # before the operators below begin their passes
        rows = source(epoch)
        while (row := next(rows, None)) is not None:
            yield mark, row
            mark = self.mark()

    @property
    def _yielded(self) -> int:
        """The number of elements of the current pass that were yielded, before a resume too."""
        return self._skipped + POSITION_LIMIT - length_hint(self._to_come)


@attrs.frozen(eq=False)
class PlacedOperators:
    """Operators of a run that share a progress, and those below them."""

    nodes: Sequence[AnyNode]
    """One operator, or all operators with a place in a stage that reads a stream."""
    progress: OperatorProgress
    below: tuple[PlacedOperators, ...] = ()

    def __attrs_post_init__(self) -> None:
        self.progress.below = [below.progress for below in self.below]

    def begin_at(self, recorded: Iterable[Place]) -> None:
        """Begin the next pass at the places of a resume point, which are in depth-first order."""
        places = self._places(iter(recorded))
        waiting: list[PlacedOperators] = [self]
        while waiting:
            part = waiting.pop()
            part.progress.begins_at, *_ = islice(places, len(part.nodes))
            waiting.extend(reversed(part.below))

    def _places(self, recorded: Iterator[Place]) -> Iterator[Place]:
        """Yield the place of each operator, in depth-first order.

        ``recorded`` has the places down to the first indexable operator; those below follow from
        that one. ``placed_operators`` never returns an indexable operator above several flows, so
        there is one operator below another.
        """
        part = self
        while True:
            for k, node in enumerate(part.nodes):
                place = next(recorded)
                if node.indexable:
                    yield from places_from(place, [*part.nodes[k:], *part._nodes_below()][:-1])
                    return
                yield place
            if len(part.below) != 1:
                break
            (part,) = part.below
        for below in part.below:
            yield from below._places(recorded)

    def _nodes_below(self) -> Iterator[AnyNode]:
        """Yield the operators below, the topmost first; each has one source."""
        part = self
        while part.below:
            (part,) = part.below
            yield from part.nodes

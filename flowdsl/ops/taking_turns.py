"""The nodes of interleave and choose: several flows whose elements take turns.

An ``Order`` says which flow has which turn, and which flows have turns once one has ended. A phase
is the turns from the end of one flow to the end of the next. Where the lengths are known, an
element is found by arithmetic: its phase, its flow, and the number of earlier turns of that flow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

import attrs
import numpy as np

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized
from flowdsl.errors import EndlessFlow, InvalidFlow
from flowdsl.nodes import (
    ELEMENTS_PER_RESTART,
    AnyNode,
    E,
    Indices,
    Merging,
    PassFactory,
    Positions,
    Restartable,
    Restarts,
    Resumable,
    Row,
    T,
    at_least,
    cached_per_node,
    epoch_of_pass,
    format_call,
    frozen_node,
    keyword_unless_default,
    plain_int,
    when_read,
)
from flowdsl.ops.packed_numbers import packed, unpacked

if TYPE_CHECKING:
    from flowdsl.nodes.turns import Turns

# -- which flow has which turn ---------------------------------------------------------------------

Members: TypeAlias = tuple[int, ...]
"""The numbers of the flows that have turns."""


class Order(ABC):
    """Which of several flows has which turn."""

    @abstractmethod
    def turns(self, members: Members) -> Turns:
        """The turns of these flows, as indices of ``members``."""

    @abstractmethod
    def members(self, n: int) -> Members:
        """The flows, of ``n``, that have turns from the start."""

    @abstractmethod
    def without(self, members: Members, index: int, ended_before: int) -> Members:
        """The flows that have the next turns, after the turn in which ``members[index]`` ended.

        ``ended_before`` is the number of flows that had ended before it.
        """


@attrs.frozen(repr=False)
class RandomOrder(Order):
    """Each turn is drawn at random."""

    weights: tuple[float, ...]
    seed: int
    salt: int
    epoch: int

    def turns(self, members: Members) -> Turns:
        from flowdsl.nodes.random_sequences import Independent  # here: not needed at import

        total = sum(self.weights[k] for k in members)
        normal = tuple(float(self.weights[k] / total) for k in members)
        return Independent(self.seed, f"{self.salt}-{len(members)}", self.epoch, normal)

    def members(self, n: int) -> Members:
        return tuple(range(n))

    def without(self, members: Members, index: int, ended_before: int) -> Members:
        return (*members[:index], *members[index + 1 :])


@attrs.frozen(repr=False)
class FixedOrder(Order):
    """Turns in proportion to weights; where these are equal, blocks of turns round-robin.

    ``cycle`` flows have turns; when one has ended, the next flow has turns instead.
    """

    weights: tuple[float, ...]
    cycle: int
    block: int

    def turns(self, members: Members) -> Turns:
        from fractions import Fraction  # here: not needed at import

        from flowdsl.nodes.turns import RoundRobin, proportional

        shares = tuple(Fraction(str(self.weights[k])) for k in members)
        if len(set(shares)) == 1:
            return RoundRobin(len(shares), self.block)
        return proportional(shares)

    def members(self, n: int) -> Members:
        return tuple(range(min(n, self.cycle)))

    def without(self, members: Members, index: int, ended_before: int) -> Members:
        begun = ended_before + len(members)
        following = (begun,) if begun < len(self.weights) else ()
        return (*members[index + 1 :], *members[:index], *following)


@attrs.frozen(eq=False, repr=False)
class _Phase:
    """The turns from the end of one flow, or the start, to the end of the next flow."""

    start: int
    """The position of the phase's first element."""
    turns: Turns
    members: Positions
    yielded_before: Positions
    """The number of elements that each flow yields before this phase."""
    left: Positions
    """The number of elements that each member has left."""

    def is_over(self, counts: Positions) -> bool:
        """True if these counts of turns give a flow more turns than it has elements."""
        return bool(np.any(counts > self.left))

    def end(self) -> tuple[int, int]:
        """The number of elements of the phase, and the index in ``members`` of the ended flow."""
        n = self.turns.first(self.is_over)
        return n - 1, int(np.argmax(self.turns.counts_before(n) > self.left))


_ENDLESS = np.iinfo(np.int64).max
"""The length of a flow that never ends: beyond every position."""

_Lengths: TypeAlias = tuple[int | None, ...]


@lru_cache(maxsize=16)
def _phases(order: Order, lengths: _Lengths) -> list[_Phase]:
    """The cached list of phases: it begins with the first, and ``_phases_until`` appends others."""
    members = order.members(len(lengths))
    none_yielded = np.zeros(len(lengths), np.int64)
    return [_phase(order, lengths, 0, members, none_yielded)]


def _phase(
    order: Order, lengths: _Lengths, start: int, members: Members, yielded_before: Positions
) -> _Phase:
    total = np.array([_ENDLESS if lengths[k] is None else lengths[k] for k in members], np.int64)
    return _Phase(
        start=start,
        turns=order.turns(members),
        members=np.array(members, np.int64),
        yielded_before=yielded_before,
        left=total - yielded_before[list(members)],
    )


def _phases_until(order: Order, lengths: _Lengths, position: int) -> list[_Phase]:
    """The phases up to the one that contains a position."""
    phases = _phases(order, lengths)
    while (n := position + 1 - (last := phases[-1]).start) > 0:
        if not last.is_over(last.turns.counts_before(n)):
            break
        size, index = last.end()
        yielded = last.yielded_before.copy()
        yielded[last.members] += last.turns.counts_before(size)
        ended_before = len(phases) - 1  # a flow has ended at the end of every phase but the last
        members = order.without(tuple(last.members.tolist()), index, ended_before)
        phases.append(_phase(order, lengths, last.start + size, members, yielded))
    return phases


# -- nodes -----------------------------------------------------------------------------------------


@frozen_node
class TakingTurns(Merging[T, E], Generic[T, E]):
    """Takes elements of several flows in turn."""

    weights: tuple[float, ...]

    def __attrs_post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        """Raise ``InvalidFlow`` for flows that cannot take turns."""

    @abstractmethod
    def order(self, epoch: int) -> Order:
        """Return which flow has which turn."""

    @property
    def title(self) -> str:
        return format_call(self._operator, "...", *self._arguments)

    @property
    def fingerprint(self) -> str:
        return f"{self.title} {self.weights}"  # in full precision, unlike the title

    _operator: ClassVar[str]

    @property
    def _arguments(self) -> list[str]:
        weights = ", ".join(f"{w:g}" for w in self.weights)
        return ["" if len(set(self.weights)) == 1 else f"weights=[{weights}]"]

    @property
    def _members(self) -> Members:
        return tuple(range(len(self.parts)))

    @property
    @cached_per_node
    def _lengths(self) -> _Lengths:
        return tuple(part.length for part in self.parts)

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        return by_epoch(addresses, self.locate)

    def locate(self, epoch: int, position: Positions) -> tuple[Positions, Positions]:
        """For each position, the flow there and the number of its elements before it."""
        phases = _phases_until(self.order(epoch), self._lengths, int(position.max()))
        starts = [phase.start for phase in phases]
        number = np.searchsorted(starts, position, side="right") - 1
        part, rank = np.empty_like(position), np.empty_like(position)
        for k in np.unique(number).tolist():
            in_phase, phase = number == k, phases[k]
            index, turns_before = phase.turns.locate(position[in_phase] - phase.start)
            part[in_phase] = phase.members[index]
            rank[in_phase] = phase.yielded_before[part[in_phase]] + turns_before
        return part, rank


class UntilLast(TakingTurns[T, E], Restartable[T, E], Generic[T, E]):
    """Ends when all flows have ended; a flow that has ended has no more turns.

    The turns depend on the lengths of the flows that have ended, which may be known only then. So
    the offset of a restart has these lengths.
    """

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch, sources, restarts), restarts.yielded)

    def _elements(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[T]:
        yielded = restarts.yielded
        restarts.note(restarts.mark(), yielded, restarts.offset)
        order, lengths = self.order(epoch), _lengths_in(restarts.offset, len(sources))
        phases = _phases_until(order, tuple(lengths), yielded)
        members, ended = tuple(phases[-1].members.tolist()), len(phases) - 1
        phase_start, yielded_by = phases[-1].start, phases[-1].yielded_before.copy()
        next_restart = yielded + ELEMENTS_PER_RESTART
        streams = dict[int, Iterator[Row[T]]]()
        while members:
            streams = {k: streams.get(k) or when_read(sources[k], epoch) for k in members}
            turns = order.turns(members)
            for turn, index in enumerate(turns.parts(yielded - phase_start), yielded - phase_start):
                if phase_start + turn == next_restart:
                    next_restart += ELEMENTS_PER_RESTART
                    if mark := restarts.mark():
                        restarts.note(mark, offset=_packed_lengths(lengths))
                row = next(streams[members[index]], None)
                if row is None:
                    yielded_by[list(members)] += turns.counts_before(turn)
                    lengths[members[index]] = int(yielded_by[members[index]])
                    phase_start = yielded = phase_start + turn
                    members, ended = order.without(members, index, ended), ended + 1
                    break
                yield row[1]


def _packed_lengths(lengths: Sequence[int | None]) -> int:
    """Return one number for the lengths of the flows that have ended; 0 if all go on."""
    if all(n is None for n in lengths):
        return 0
    return packed(0 if n is None else n + 1 for n in lengths)  # 0 in place of None


def _lengths_in(offset: int, flows: int) -> list[int | None]:
    """Return the lengths that ``_packed_lengths`` packed; None for a flow that has not ended."""
    return [k - 1 if k else None for k in unpacked(offset)] if offset else [None] * flows


class UntilFirst(TakingTurns[T, E], Resumable[T, E], Generic[T, E]):
    """Ends at the turn of a flow that has ended."""

    @property
    def _arguments(self) -> list[str]:
        return [*super()._arguments, "stop='first'"]

    def combined_effects(self) -> frozenset[Tag]:
        return ending_with_first(super().combined_effects(), self.parts)

    @property
    @cached_per_node
    def length(self) -> int | None:
        if self.effects & {Unsized, Endless}:
            return None
        return _phases(self.order(0), self._lengths)[0].end()[0]

    @property
    def indexable(self) -> bool:
        return super().indexable and (self.length is not None or Endless in self.effects)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch, yielded, sources), yielded)

    def _elements(self, epoch: int, yielded: int, sources: Sequence[PassFactory]) -> Iterator[T]:
        streams = [when_read(source, epoch) for source in sources]
        for part in self.order(epoch).turns(self._members).parts(yielded):
            row = next(streams[part], None)
            if row is None:
                return
            yield row[1]


class UntilAll(TakingTurns[T, E], Generic[T, E]):
    """Ends when each flow was seen whole; a flow that has ended begins again, as in ``repeat``."""

    def _check(self) -> None:
        super()._check()
        for part in self.parts:
            if part.length == 0:
                raise InvalidFlow(
                    f"{self._operator}: {part.title} has no elements, so with stop='all' it would "
                    f"begin again without end; leave it out"
                )

    @property
    def _arguments(self) -> list[str]:
        return [*super()._arguments, "stop='all'"]

    @property
    @cached_per_node
    def length(self) -> int | None:
        if self.effects & {Unsized, Endless}:
            return None
        lengths = np.array(self._lengths)
        return self.order(0).turns(self._members).first(lambda n: bool(np.all(n >= lengths)))

    @property
    def indexable(self) -> bool:
        return super().indexable and (self.length is not None or Endless in self.effects)

    @property
    def looks_back(self) -> int | None:
        return 1  # to see that a flow has ended, it reads its next element

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        part, at = super().resolve(addresses)
        lengths = np.array([_ENDLESS if n is None else n for n in self._lengths], np.int64)
        passes, position = np.divmod(at.position, lengths[part])
        return part, Indices(epoch_of_pass(at.epoch, passes), position)

    def locate(self, epoch: int, position: Positions) -> tuple[Positions, Positions]:
        return self.order(epoch).turns(self._members).locate(position)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch, sources))

    def _elements(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[T]:
        operator = self._operator
        flows = [
            _Passes(operator, node, read, epoch)
            for node, read in zip(self.parts, sources, strict=True)
        ]
        unseen = set(self._members)
        for part in self.order(epoch).turns(self._members).parts():
            yield flows[part].take()
            if part in unseen and flows[part].was_seen_whole():
                unseen.remove(part)
                if not unseen:
                    return


@attrs.define(eq=False, repr=False)
class _Passes:
    """The elements of consecutive passes over a flow, each with its own epoch."""

    operator: str
    node: AnyNode
    read: PassFactory
    epoch: int
    _number: int = -1
    """The number of the current pass; -1 before the first."""
    _rows: Iterator[Row[Any]] = attrs.field(factory=lambda: iter(()))
    _ahead: Row[Any] | Exception | None = None
    """The row that ``was_seen_whole`` has read ahead, or the error that it raised."""

    def take(self) -> Any:
        """Return the next element."""
        row, self._ahead = self._ahead or next(self._rows, None), None
        if row is None:
            self._number += 1
            inner = epoch_of_pass(np.array([self.epoch]), np.array([self._number]))
            self._rows = self.read(int(inner[0]))
            row = next(self._rows, None)
        if row is None:
            raise EndlessFlow(
                f"{self.operator}: pass {self._number} of {self.node.title} had no elements, and "
                f"continuing might never yield one; check what is filtered or left out"
            )
        if isinstance(row, Exception):
            raise row
        return row[1]

    def was_seen_whole(self) -> bool:
        """Return True if all elements of a pass were taken; for this it reads one ahead."""
        if self._number == 0:
            try:
                self._ahead = next(self._rows, None)
            except Exception as error:  # ``take`` raises it, at the position of its element
                self._ahead = error
        return self._number > 0 or self._ahead is None


def by_epoch(
    addresses: Indices, locate: Callable[[int, Positions], tuple[Positions, Positions]]
) -> tuple[Positions, Indices]:
    """The part and the position in it for every address, computed one epoch at a time."""
    part, position = np.empty_like(addresses.position), np.empty_like(addresses.position)
    for epoch in np.unique(addresses.epoch).tolist():
        in_epoch = addresses.epoch == epoch
        part[in_epoch], position[in_epoch] = locate(epoch, addresses.position[in_epoch])
    return part, Indices(addresses.epoch, position)


def ending_with_first(effects: frozenset[Tag], parts: Sequence[AnyNode]) -> frozenset[Tag]:
    """The effects of an operator that ends when one of its parts ends."""
    endless = all(Endless in part.effects for part in parts)
    return effects if endless else effects - {Endless}


@frozen_node
class _Interleaved(TakingTurns[T, E], Generic[T, E]):
    """``block`` elements of each flow in turn, or in proportion to weights."""

    cycle: int = attrs.field(converter=plain_int, validator=at_least(1))
    block: int = attrs.field(converter=plain_int, validator=at_least(1))

    _operator: ClassVar[str] = "interleave"

    @property
    def _arguments(self) -> list[str]:
        cycle = keyword_unless_default("cycle", min(self.cycle, len(self.parts)), len(self.parts))
        block = keyword_unless_default("block", self.block, 1)
        return [*super()._arguments, cycle, block]

    def order(self, epoch: int) -> Order:
        return FixedOrder(self.weights, self.cycle, self.block)


class Interleave(UntilLast[T, E | Reordered], _Interleaved[T, E | Reordered], Generic[T, E]):
    """Elements of each flow in turn, or in proportion to weights, without ended flows."""


class InterleaveFirst(
    UntilFirst[T, E | Reordered | Resampled],
    _Interleaved[T, E | Reordered | Resampled],
    Generic[T, E],
):
    """One element of each flow in turn, or in proportion to weights, until a flow has ended."""


class InterleaveAll(
    UntilAll[T, E | Reordered | Resampled],
    _Interleaved[T, E | Reordered | Resampled],
    Generic[T, E],
):
    """One element of each flow in turn, or in proportion, until each flow was seen whole."""


_MAX_TO_CHOOSE = 10**12
"""A limit of the elements of ``choose``: up to it, finding a flow's end takes milliseconds; beyond
it, minutes."""


@frozen_node
class _Chosen(TakingTurns[T, E], Generic[T, E]):
    """Each element from a flow drawn at random."""

    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""

    _operator: ClassVar[str] = "choose"
    order_varies_by_epoch: ClassVar[bool | None] = True

    def _check(self) -> None:
        super()._check()
        known = sum(part.length or 0 for part in self.parts)
        if known > _MAX_TO_CHOOSE:
            raise InvalidFlow(
                f"choose: the flows may have at most {_MAX_TO_CHOOSE:,} rows together, got "
                f"{known:,}; for flows without end write repeat()"
            )

    @property
    def _arguments(self) -> list[str]:
        return [*super()._arguments, keyword_unless_default("seed", self.seed, 0)]

    def order(self, epoch: int) -> Order:
        return RandomOrder(self.weights, self.seed, self.salt, epoch)


class Choose(UntilLast[T, E | Reordered], _Chosen[T, E | Reordered], Generic[T, E]):
    """Each element from a flow drawn at random, among the flows that have not ended."""


class ChooseFirst(
    UntilFirst[T, E | Reordered | Resampled | Unsized],
    _Chosen[T, E | Reordered | Resampled | Unsized],
    Generic[T, E],
):
    """Each element from a flow drawn at random, until an ended flow is drawn."""


class ChooseAll(
    UntilAll[T, E | Reordered | Resampled | Unsized],
    _Chosen[T, E | Reordered | Resampled | Unsized],
    Generic[T, E],
):
    """Each element from a flow drawn at random, until each flow was seen whole."""

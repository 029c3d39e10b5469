"""concat, interleave, choose, mix: merge the elements of several flows into one flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

import attrs
import numpy as np

from flowdsl.effects import Counted, Effect, Endless, Reordered, Resampled, Tag, Unsized
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    AnyNode,
    E,
    FlowBase,
    Indices,
    Merging,
    Node,
    PassFactory,
    Positions,
    Row,
    T,
    at_least,
    flow,
    format_call,
    keyword_unless_default,
    plain_int,
    rejects_keywords,
)
from flowdsl.nodes.random_sequences import MAX_ROWS_TO_MIX, Draws, Independent, Mixed

if TYPE_CHECKING:
    from flowdsl.flow import Flow

F = TypeVar("F", bound=Effect)
C = TypeVar("C", bound=Counted)


# -- in a fixed order ------------------------------------------------------------------------------


@attrs.frozen(repr=False)
class Concat(Merging[T, E], Generic[T, E]):
    """All elements of the first flow, then all elements of the next, and so on."""

    def __attrs_post_init__(self) -> None:
        for part in self.parts[:-1]:
            if Endless in part.effects:
                raise InvalidFlow(
                    f"concat: {part.title} never ends, so the flow after it is never reached; "
                    f"put .take(n) after it, or interleave them"
                )

    @property
    def title(self) -> str:
        return "concat(...)"

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        starts = np.cumsum([0, *(part.length or 0 for part in self.parts[:-1])])
        part = np.searchsorted(starts, addresses.position, side="right") - 1
        return part, Indices(addresses.epoch, addresses.position - starts[part])

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        streams = (read(epoch) for read in sources)
        return enumerate(x for _, x in chain.from_iterable(streams))


class Interleave(Merging[T, E | Reordered], Generic[T, E]):
    """One element of each flow, round-robin; a flow that has ended is skipped."""

    @property
    def title(self) -> str:
        return "interleave(...)"

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        # From the turn in which one part ends until the next part ends, every turn takes one
        # element of each remaining part.
        lengths = np.array([_NEVER if p.length is None else p.length for p in self.parts])
        end_turns = np.unique(np.append(0, lengths[lengths < lengths.max()]))
        section_starts = np.minimum(lengths, end_turns[:, None]).sum(axis=1)
        section = np.searchsorted(section_starts, addresses.position, side="right") - 1
        remaining = [np.flatnonzero(lengths > end) for end in end_turns]
        size = np.array([len(parts) for parts in remaining], np.int64)[section]
        turn, place = np.divmod(addresses.position - section_starts[section], size)
        part_table = np.array([np.resize(parts, len(lengths)) for parts in remaining])
        return part_table[section, place], Indices(addresses.epoch, end_turns[section] + turn)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch, sources))

    def _elements(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[T]:
        streams = [read(epoch) for read in sources]
        while streams:
            remaining: list[Iterator[Row[T]]] = []
            for stream in streams:
                for _, x in islice(stream, 1):
                    remaining.append(stream)
                    yield x
            streams = remaining


_NEVER = np.iinfo(np.int64).max // 4096
"""The length of an endless part: beyond every position, and small enough to add up."""


# -- at random -------------------------------------------------------------------------------------


_MAX_TO_CHOOSE = 10**12
"""The most elements of ``choose``: up to it, finding a flow's end takes milliseconds; beyond it,
minutes."""

_MAX_WEIGHT = 1e300
_MIN_WEIGHT = 1e-6
"""The least probability of a flow: the consumer of a rarer flow would wait very long."""


def _are_weights(node: Choose[Any, Any], field: object, value: tuple[float, ...]) -> None:
    numbers = (isinstance(p, (int, float, np.number)) and 0 < p < _MAX_WEIGHT for p in value)
    if len(value) != len(node.parts) or not all(numbers) or min(value) < _MIN_WEIGHT * sum(value):
        raise InvalidFlow(
            f"choose: probabilities must be {len(node.parts)} positive numbers, one for each "
            f"flow, and not below a millionth of their sum, got {list(value)!r}"
        )


@attrs.frozen(repr=False)
class Choose(Merging[T, E | Reordered], Generic[T, E]):
    """Each element from a flow drawn at random, among the flows that have not ended."""

    def __attrs_post_init__(self) -> None:
        known = sum(part.length or 0 for part in self.parts)
        if known > _MAX_TO_CHOOSE:
            raise InvalidFlow(
                f"choose: the flows may have at most {_MAX_TO_CHOOSE:,} rows together, got "
                f"{known:,}; for flows without end write repeat()"
            )

    probabilities: tuple[float, ...] = attrs.field(validator=_are_weights)
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""

    order_varies_by_epoch: ClassVar[bool | None] = True

    @property
    def title(self) -> str:
        return format_call("choose", "...", *self._arguments)

    @property
    def fingerprint(self) -> str:
        return f"{self.title} {self.probabilities}"  # in full precision, unlike the title

    @property
    def _arguments(self) -> list[str]:
        weights = ", ".join(f"{p:g}" for p in self.probabilities)
        equal = len(set(self.probabilities)) == 1  # the default
        return [
            "" if equal else f"probabilities=[{weights}]",
            keyword_unless_default("seed", self.seed, 0),
        ]

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        return _by_epoch(addresses, self._locate)

    def _locate(self, epoch: int, position: Positions) -> tuple[Positions, Positions]:
        lengths = tuple(part.length for part in self.parts)
        phases = _phases(self.probabilities, self.seed, self.salt, epoch, lengths)
        number = np.searchsorted([phase.start for phase in phases], position, side="right") - 1
        part, rank = np.empty_like(position), np.empty_like(position)
        for k in np.unique(number):
            here, phase = number == k, phases[k]
            drawn, before = phase.draws.locate(position[here] - phase.start)
            part[here] = phase.remaining[drawn]
            rank[here] = phase.taken[drawn] + before
        return part, rank

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch, sources))

    def _elements(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[T]:
        streams = dict(enumerate(read(epoch) for read in sources))
        while streams:
            remaining = tuple(streams)
            for drawn in _draws(self.probabilities, self.seed, self.salt, epoch, remaining).parts():
                row = next(streams[remaining[drawn]], None)
                if row is None:
                    del streams[remaining[drawn]]
                    break
                yield row[1]


class ChooseFirst(Choose[T, E | Reordered | Resampled | Unsized], Generic[T, E]):
    """Each element from a flow drawn at random, until an ended flow is drawn."""

    @property
    def _arguments(self) -> list[str]:
        return [*super()._arguments, "stop='first'"]

    def combined_effects(self) -> frozenset[Tag]:
        return ending_with_first(super().combined_effects(), self.parts)

    @property
    def indexable(self) -> bool:
        # Where a pass stops depends on its draws, so each pass has its own length.
        return super().indexable and Endless in self.effects

    @property
    def length(self) -> int | None:
        return None

    def _elements(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[T]:
        streams = [read(epoch) for read in sources]
        remaining = tuple(range(len(streams)))
        for drawn in _draws(self.probabilities, self.seed, self.salt, epoch, remaining).parts():
            row = next(streams[drawn], None)
            if row is None:
                return
            yield row[1]


@attrs.frozen
class _Phase:
    """The elements between the ends of two flows."""

    start: int
    """The position of the phase's first element."""
    draws: Draws
    remaining: Positions
    """The indices of the flows that have not ended."""
    taken: Positions
    """The number of elements that each of these flows yields before this phase."""


@lru_cache(maxsize=64)
def _phases(
    weights: tuple[float, ...], seed: int, salt: int, epoch: int, lengths: tuple[int | None, ...]
) -> list[_Phase]:
    start, phases = 0, list[_Phase]()
    remaining = np.arange(len(weights))
    taken = np.zeros(len(weights), np.int64)
    while len(remaining):
        draws = _draws(weights, seed, salt, epoch, tuple(remaining.tolist()))
        phases.append(_Phase(start, draws, remaining, taken))
        ends = [
            (draws.position_of(k, length - int(taken[k])), k)
            for k, part in enumerate(remaining)
            if (length := lengths[part]) is not None
        ]
        if not ends:
            break
        end, ended = min(ends)
        start += end
        taken = np.delete(taken + draws.counts_before(end), ended)
        remaining = np.delete(remaining, ended)
    return phases


def _draws(
    weights: tuple[float, ...], seed: int, salt: int, epoch: int, remaining: tuple[int, ...]
) -> Draws:
    """The sequence of draws among the flows that have not ended."""
    total = sum(weights[k] for k in remaining)
    normal = tuple(float(weights[k] / total) for k in remaining)
    return Independent(seed, f"{salt}-{len(remaining)}", epoch, normal)


@attrs.frozen(repr=False)
class Mix(Merging[T, E | Reordered], Generic[T, E]):
    """All elements in a random order that keeps the order within each flow.

    All such orders are equally likely.
    """

    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""

    def __attrs_post_init__(self) -> None:
        for part in self.parts:
            if part.length is None:
                raise InvalidFlow(
                    f"mix: {part.title} has no known length, without which flows cannot be "
                    f"mixed evenly; choose(...) does not need it"
                )
        if sum(self._lengths) >= MAX_ROWS_TO_MIX:
            raise InvalidFlow(
                f"mix: the flows may have at most {MAX_ROWS_TO_MIX - 1:,} rows together, got "
                f"{sum(self._lengths):,}"
            )

    order_varies_by_epoch: ClassVar[bool | None] = True

    @property
    def title(self) -> str:
        return format_call("mix", "...", keyword_unless_default("seed", self.seed, 0))

    @property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(part.length or 0 for part in self.parts)

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        return _by_epoch(addresses, lambda epoch, position: self._draws(epoch).locate(position))

    def _draws(self, epoch: int) -> Draws:
        return Mixed(self.seed, str(self.salt), epoch, self._lengths)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        streams = [read(epoch) for read in sources]
        drawn = islice(self._draws(epoch).parts(), self.length)
        return enumerate(x for part in drawn for _, x in islice(streams[part], 1))


def _by_epoch(
    addresses: Indices, locate: Callable[[int, Positions], tuple[Positions, Positions]]
) -> tuple[Positions, Indices]:
    """The part and the position in it for every address, computed one epoch at a time."""
    part, position = np.empty_like(addresses.position), np.empty_like(addresses.position)
    for epoch in np.unique(addresses.epoch):
        here = addresses.epoch == epoch
        part[here], position[here] = locate(int(epoch), addresses.position[here])
    return part, Indices(addresses.epoch, position)


def ending_with_first(effects: frozenset[Tag], parts: Sequence[AnyNode]) -> frozenset[Tag]:
    """The effects of an operator that ends when one of its parts ends."""
    endless = all(Endless in part.effects for part in parts)
    return effects if endless else effects - {Endless}


class Combining(FlowBase[T, E]):
    """Operators that merge the elements of several flows."""

    def concat(self, *others: FlowBase[T, F]) -> Flow[T, E | F]:
        """Concatenate flows: all elements of this flow, then all elements of the next, and so on.

        Length: the sum. Effects: the flows' effects. Errors: ``InvalidFlow`` if an endless flow is
        not the last, or if the elements are known to differ in dtype, type or components.

        >>> import flowdsl as fl
        >>> fl.from_range(2).concat(fl.from_items([7, 8, 9])).collect()
        [0, 1, 7, 8, 9]

        Source: ``itertools.chain``.

        Elsewhere: tensorpack ``ConcatData``; tf.data ``concatenate``; Grain
        ``MapDataset.concatenate``; torchdata ``Concater``.
        """
        check_flows("concat", others)
        return flow(Concat(_parts(self, others)))

    def interleave(self, *others: FlowBase[T, F]) -> Flow[T, E | F | Reordered]:
        """Yield one element of each flow, round-robin; a flow that has ended is skipped.

        Length: the sum. Effects: ``Reordered``: each row once, in order within each flow. Errors:
        ``InvalidFlow`` for elements known to differ, as for ``concat``.

        >>> import flowdsl as fl
        >>> fl.from_range(2).interleave(fl.from_items([7, 8, 9])).collect()
        [0, 7, 1, 8, 9]

        Source: the merging of several inputs by ``tf.train.batch_join``, in a fixed order.

        Elsewhere: tensorpack none; tf.data ``interleave``; Grain ``InterleaveIterDataset``;
        torchdata ``MultiplexerLongest``.
        """
        check_flows("interleave", others)
        return flow(Interleave(_parts(self, others)))

    @overload
    def choose(
        self,
        *others: FlowBase[T, F],
        probabilities: Sequence[float] | None = None,
        seed: int = 0,
        stop: Literal["last"] = "last",
    ) -> Flow[T, E | F | Reordered]: ...
    @overload
    def choose(
        self,
        *others: FlowBase[T, F],
        probabilities: Sequence[float] | None = None,
        seed: int = 0,
        stop: Literal["first", "last"],
    ) -> Flow[T, E | F | Reordered | Resampled | Unsized]: ...
    @rejects_keywords(weights="write probabilities={}", rerandomize_each_iteration="write repeat()")
    def choose(
        self: FlowBase[Any, Any],
        *others: FlowBase[Any, Any],
        probabilities: Sequence[float] | None = None,
        seed: int = 0,
        stop: Literal["first", "last"] = "last",
    ) -> Flow[Any, Any]:
        """Draw each element from one of the flows at random.

        ``probabilities`` are weights, one for each flow, this flow first; by default all are equal.
        A flow keeps its own order. A flow that has ended is no longer drawn, and the pass ends with
        the last flow; with ``stop="first"`` the pass ends when an ended flow is drawn, so that the
        proportions hold to the end.

        Over random-access flows no element moves: for any position, the flow and the element of it
        are computed directly. With ``stop="first"`` this requires endless flows.

        Length: the sum; with ``stop="first"`` passes differ in length. Effects: ``Reordered``; with
        ``stop="first"`` also ``Resampled`` and ``Unsized``. Errors: ``InvalidFlow`` for
        probabilities that are not positive numbers, one for each flow, and for elements known to
        differ, as for ``concat``.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(3).choose(fl.from_items([7, 8, 9]), probabilities=[2, 1])
        >>> flow.collect(), list(flow.epoch(1))
        ([0, 7, 8, 9, 1, 2], [0, 1, 2, 7, 8, 9])

        Source: ``RandomChooseData`` in tensorpack, with ``stop="first"``.

        Elsewhere: tensorpack ``RandomChooseData``; tf.data ``sample_from_datasets``; Grain
        ``MapDataset.mix``, in fixed turns; torchdata ``SampleMultiplexer``.
        """
        check_flows("choose", others)
        if stop not in ("first", "last"):
            raise InvalidFlow(f"choose: stop must be 'first' or 'last', got {stop!r}")
        parts = _parts(self, others)
        try:
            weights = (1.0,) * len(parts) if probabilities is None else tuple(probabilities)
        except TypeError:
            raise InvalidFlow(
                f"choose: probabilities must be a list of numbers, one for each flow, got "
                f"{probabilities!r}"
            ) from None
        kind = Choose if stop == "last" else ChooseFirst
        return flow(kind(parts, weights, seed, _salt(parts)))

    def mix(
        self: FlowBase[T, Counted], *others: FlowBase[T, C], seed: int = 0
    ) -> Flow[T, E | C | Reordered]:
        """Mix all elements evenly, keeping the order within each flow.

        All such orders are equally likely, and each epoch has its own. Over random-access flows no
        element moves: the flow at any position is computed directly.

        Length: the sum. Effects: ``Reordered``. Errors: ``InvalidFlow`` for a flow of unknown
        length, for 10**9 rows or more, and for elements known to differ, as for ``concat``.

        >>> import flowdsl as fl
        >>> fl.from_range(3).mix(fl.from_items([7, 8, 9])).collect()
        [0, 7, 8, 1, 2, 9]

        Source: ``RandomMixData`` in tensorpack.

        Elsewhere: tensorpack ``RandomMixData``; tf.data none; Grain none; torchdata none.
        """
        check_flows("mix", others)
        parts = _parts(self, others)
        return flow(Mix(parts, seed, _salt(parts)))


def _parts(
    first: FlowBase[Any, Any], others: Sequence[FlowBase[Any, Any]]
) -> tuple[Node[Any, Any], ...]:
    return (first.node, *(other.node for other in others))


def _salt(parts: Sequence[AnyNode]) -> int:
    """The number of operators below; of the longest part."""
    return max(part.depth for part in parts)


def check_flows(operator: str, others: Sequence[object]) -> None:
    """Refuse arguments that are not flows, before their nodes are read."""
    for other in others:
        if isinstance(other, FlowBase):
            continue
        flows = isinstance(other, (list, tuple)) and any(isinstance(x, FlowBase) for x in other)
        hint = f"unpack them, {operator}(*flows)" if flows else "from_items(...) makes one"
        raise InvalidFlow(
            f"{operator}: expected flows to combine with, got {type(other).__name__}; {hint}"
        )

"""concat, interleave, choose, mix: merge the elements of several flows into one flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, overload

import attrs
import numpy as np

from flowdsl.effects import Counted, Effect, Endless, Reordered, Resampled, Unsized
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
    Resumable,
    Row,
    T,
    at_least,
    flow,
    format_call,
    frozen_node,
    keyword_unless_default,
    plain_int,
    rejects_keywords,
    when_read,
)
from flowdsl.ops.taking_turns import (
    Choose,
    ChooseAll,
    ChooseFirst,
    Interleave,
    InterleaveAll,
    InterleaveFirst,
    by_epoch,
)

if TYPE_CHECKING:
    from flowdsl.flow import Flow
    from flowdsl.nodes.random_sequences import Draws

Stop: TypeAlias = Literal["first", "last", "all"]
Parts: TypeAlias = tuple[Node[Any, Any], ...]

F = TypeVar("F", bound=Effect)
C = TypeVar("C", bound=Counted)


@frozen_node
class Concat(Merging[T, E], Resumable[T, E], Generic[T, E]):
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

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        streams = (read(epoch) for read in sources)  # a flow that had ended yields no more rows
        return enumerate((x for _, x in chain.from_iterable(streams)), yielded)


@frozen_node
class Mix(Merging[T, E | Reordered], Resumable[T, E | Reordered], Generic[T, E]):
    """All elements in a random order that keeps the order within each flow.

    All such orders are equally likely.
    """

    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""

    order_varies_by_epoch: ClassVar[bool | None] = True

    def __attrs_post_init__(self) -> None:
        from flowdsl.nodes.random_sequences import MAX_ROWS_TO_MIX  # here: not needed at import

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

    @property
    def title(self) -> str:
        return format_call("mix", "...", keyword_unless_default("seed", self.seed, 0))

    @property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(part.length or 0 for part in self.parts)

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        return by_epoch(addresses, lambda epoch, position: self._draws(epoch).locate(position))

    def _draws(self, epoch: int) -> Draws:
        from flowdsl.nodes.random_sequences import Mixed

        return Mixed(self.seed, str(self.salt), epoch, self._lengths)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        streams = [when_read(source, epoch) for source in sources]
        parts = islice(self._draws(epoch).parts(yielded), sum(self._lengths) - yielded)
        elements = (x for part in parts for _, x in islice(streams[part], 1))  # one of each
        return enumerate(elements, yielded)


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

    @overload
    def interleave(
        self,
        *others: FlowBase[T, F],
        weights: Sequence[float] | None = None,
        cycle: int | None = None,
        block: int = 1,
        stop: Literal["last"] = "last",
    ) -> Flow[T, E | F | Reordered]: ...
    @overload
    def interleave(
        self,
        *others: FlowBase[T, F],
        weights: Sequence[float] | None = None,
        cycle: int | None = None,
        block: int = 1,
        stop: Stop,
    ) -> Flow[T, E | F | Reordered | Resampled]: ...
    @rejects_keywords(
        probabilities="write weights={}, or choose(...) for random turns",
        map_func="write interleave_map(f)",
        cycle_length="write interleave_map(f, cycle={n})",
    )
    def interleave(
        self: FlowBase[Any, Any],
        *others: FlowBase[Any, Any],
        weights: Sequence[float] | None = None,
        cycle: int | None = None,
        block: int = 1,
        stop: Stop = "last",
    ) -> Flow[Any, Any]:
        """Take elements of several flows in fixed turns: one of each, or in proportion to weights.

        ``weights`` are positive numbers, one for each flow, this flow first, or zero to leave a
        flow out. Of the first ``n`` elements, for every ``n``, the number from each flow differs
        from its exact share by at most 1; by at most 2 with more than three flows whose weights, as
        whole numbers, sum to more than 65,536.

        Without weights, ``block`` elements of a flow are taken in each turn. With ``cycle=n``, the
        first ``n`` flows take turns, and the next flow follows in the place of one that has ended:
        of many streams, only ``n`` are open at a time.

        A flow that has ended has no more turns, and the pass ends with the last flow. With
        ``stop="first"`` the pass ends at the turn of a flow that has ended. With ``stop="all"``
        the pass ends when each flow was seen whole; until then, a flow that has ended begins again,
        with its next epoch, as in ``repeat``.

        Over random-access flows no element moves: the flow at any position, and the position in
        that flow, are computed.

        Length: the sum; with ``stop="first"`` or ``"all"`` it follows from the lengths.

        Effects: ``Reordered``: each row once, in order within each flow; with ``stop="first"`` or
        ``"all"`` also ``Resampled``.

        Errors: ``InvalidFlow`` for invalid weights, for ``cycle`` or ``block`` with weights, for
        ``cycle`` with ``stop``, for elements known to differ, as for ``concat``, and for a flow
        known to be empty with ``stop="all"``; ``EndlessFlow`` if a flow turns out to be empty in a
        pass with ``stop="all"``.

        >>> import flowdsl as fl
        >>> fl.from_range(2).interleave(fl.from_items([7, 8, 9])).collect()
        [0, 7, 1, 8, 9]
        >>> fl.from_range(2).interleave(fl.from_items([7, 8, 9]), stop="all").collect()
        [0, 7, 1, 8, 0, 9]
        >>> fl.from_range(4).interleave(fl.from_items([7, 8]), weights=[2, 1]).collect()
        [0, 7, 1, 2, 8, 3]

        Source: the merging of several inputs by ``tf.train.batch_join``, in a fixed order; for
        weights, ``MapDataset.mix`` in Grain.

        Elsewhere: tensorpack none; tf.data ``choose_from_datasets``; Grain ``MapDataset.mix``;
        torchdata ``MultiplexerLongest``.
        """
        check_flows("interleave", others)
        return interleaved(_parts(self, others), weights, cycle, block, stop)

    @overload
    def choose(
        self,
        *others: FlowBase[T, F],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        stop: Literal["last"] = "last",
    ) -> Flow[T, E | F | Reordered]: ...
    @overload
    def choose(
        self,
        *others: FlowBase[T, F],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        stop: Stop,
    ) -> Flow[T, E | F | Reordered | Resampled | Unsized]: ...
    @rejects_keywords(probabilities="write weights={}", rerandomize_each_iteration="write repeat()")
    def choose(
        self: FlowBase[Any, Any],
        *others: FlowBase[Any, Any],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        stop: Stop = "last",
    ) -> Flow[Any, Any]:
        """Draw each element from one of the flows at random.

        The probability of a flow is its share of the ``weights``, which are positive numbers, one
        for each flow, this flow first, or zero to leave a flow out; by default all are equal. A
        flow keeps its own order.

        A flow that has ended is no longer drawn, and the pass ends with the last flow. With
        ``stop="first"`` the pass ends when an ended flow is drawn, so that the proportions hold to
        the end. With ``stop="all"`` the pass ends when each flow was seen whole; until then, a flow
        that has ended begins again, with its next epoch, as in ``repeat``.

        Over random-access flows no element moves: the flow at any position, and the position in
        that flow, are computed. With ``stop="first"`` or ``"all"`` this requires endless flows.

        Length: the sum; with ``stop="first"`` or ``"all"`` passes differ in length.

        Effects: ``Reordered``; with ``stop="first"`` or ``"all"`` also ``Resampled`` and
        ``Unsized``.

        Errors: ``InvalidFlow`` for invalid weights, for elements known to differ, as for
        ``concat``, and for a flow known to be empty with ``stop="all"``; ``EndlessFlow`` if a flow
        turns out to be empty in a pass with ``stop="all"``.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(3).choose(fl.from_items([7, 8, 9]), weights=[2, 1])
        >>> flow.collect(), list(flow.epoch(1))
        ([0, 7, 8, 9, 1, 2], [0, 1, 2, 7, 8, 9])

        Source: ``RandomChooseData`` in tensorpack, with ``stop="first"``; ``interleave_datasets``
        in Hugging Face Datasets, with ``stop="all"``.

        Elsewhere: tensorpack ``RandomChooseData``; tf.data ``sample_from_datasets``; Grain none;
        torchdata ``SampleMultiplexer``.
        """
        check_flows("choose", others)
        return chosen(_parts(self, others), weights, seed, stop)

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
        return mixed(_parts(self, others), seed)


_Kinds: TypeAlias = dict[Stop, Callable[..., Node[Any, Any]]]

_INTERLEAVE: _Kinds = {"first": InterleaveFirst, "last": Interleave, "all": InterleaveAll}
_CHOOSE: _Kinds = {"first": ChooseFirst, "last": Choose, "all": ChooseAll}


def interleaved(
    parts: Parts, weights: Sequence[float] | None, cycle: int | None, block: int, stop: Stop
) -> Flow[Any, Any]:
    """Interleave nodes."""
    kind = _INTERLEAVE[_checked_stop("interleave", stop)]
    if weights is not None and (cycle is not None or block != 1):
        raise InvalidFlow(
            "interleave: with weights, elements are taken one at a time, of all flows: leave out "
            "cycle= and block=, or weights="
        )
    if cycle is not None and stop != "last":
        raise InvalidFlow(
            f"interleave: with cycle= the pass ends with the last flow: leave out stop={stop!r}"
        )
    members, numbers = _weighted("interleave", parts, weights)
    return flow(kind(members, numbers, len(members) if cycle is None else cycle, block))


def chosen(parts: Parts, weights: Sequence[float] | None, seed: int, stop: Stop) -> Flow[Any, Any]:
    """Choose among nodes."""
    kind = _CHOOSE[_checked_stop("choose", stop)]
    drawn, numbers = _weighted("choose", parts, weights)
    return flow(kind(drawn, numbers, seed, _salt(drawn)))


def mixed(parts: Parts, seed: int) -> Flow[Any, Any]:
    """Mix nodes."""
    return flow(Mix(parts, seed, _salt(parts)))


def _checked_stop(operator: str, stop: Stop) -> Stop:
    if stop not in ("first", "last", "all"):
        raise InvalidFlow(f"{operator}: stop must be 'first', 'last' or 'all', got {stop!r}")
    return stop


_MAX_WEIGHT = 1e300
_MIN_SHARE = 1e-6
"""The least share of a flow: a consumer would wait very long for an element of a rarer flow."""


def _weighted(
    operator: str, parts: Parts, weights: Sequence[float] | None
) -> tuple[Parts, tuple[float, ...]]:
    """The flows that have turns, without flows of weight zero, and their weights."""
    if weights is None:
        return parts, (1.0,) * len(parts)
    try:
        given = tuple(weights)
    except TypeError:
        raise InvalidFlow(
            f"{operator}: weights must be a list of numbers, one for each flow, got {weights!r}"
        ) from None
    numbers = tuple(
        _python_number(w) for w in given if isinstance(w, (int, float, np.integer, np.floating))
    )
    if not len(numbers) == len(given) == len(parts) or not _are_weights(numbers):
        raise InvalidFlow(
            f"{operator}: weights must be {len(parts)} numbers, one for each flow, not all zero, "
            f"and each zero or at least a millionth of their sum, got {list(given)!r}"
        )
    members = [(part, w) for part, w in zip(parts, numbers, strict=True) if w]
    return tuple(part for part, _ in members), tuple(w for _, w in members)


def _python_number(weight: float) -> float:
    """The weight as an int or float of Python, also if it is one of NumPy."""
    return int(weight) if isinstance(weight, (int, np.integer)) else float(weight)


def _are_weights(weights: tuple[float, ...]) -> bool:
    """Return True if the weights are not all zero, and each is zero or a large enough share."""
    if not all(0 <= w < _MAX_WEIGHT for w in weights):  # False for NaN, too
        return False
    least = _MIN_SHARE * sum(weights)
    return least > 0 and all(w == 0 or w >= least for w in weights)


def _parts(first: FlowBase[Any, Any], others: Sequence[FlowBase[Any, Any]]) -> Parts:
    return (first.node, *(other.node for other in others))


def _salt(parts: Sequence[AnyNode]) -> int:
    """The number of operators up to the longest part: see ``Mix.salt``."""
    return max(part.depth for part in parts)


def check_flows(operator: str, others: Sequence[object]) -> None:
    """Refuse arguments that are not flows, before their nodes are read."""
    for other in others:
        if isinstance(other, FlowBase):
            continue
        is_list = isinstance(other, (list, tuple)) and any(isinstance(x, FlowBase) for x in other)
        hint = f"unpack them, {operator}(*flows)" if is_list else "from_items(...) makes one"
        raise InvalidFlow(
            f"{operator}: expected flows to combine with, got {type(other).__name__}; {hint}"
        )

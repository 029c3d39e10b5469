# Type checkers try overloads in order: slices that may have no stop come first.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""Rows by number: slices, and lists of positions."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import (
    Counted,
    Endless,
    Exact,
    Finite,
    InOrder,
    Reordered,
    Resampled,
    Tag,
    Unmoved,
    Unsized,
)
from flowdsl.elements.read_only import read_only
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    POSITION_LIMIT,
    AnyNode,
    E,
    FlowBase,
    IndexTransform,
    Indices,
    PassFactory,
    Positions,
    Resumable,
    Row,
    SourcePosition,
    T,
    at_least,
    cached_per_node,
    endless_part,
    flow,
    frozen_node,
    is_int,
    plain_int,
    rejects_keywords,
)
from flowdsl.nodes.validation import brief
from flowdsl.ops.sizing import Skip, Take

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@frozen_node
class ByNumber(IndexTransform[T, E], Generic[T, E]):
    """Elements of a source of known length, each at a position that is computed for it."""

    @property
    def may_repeat(self) -> bool:
        """True if an element may come more than once."""
        return False

    @abstractmethod
    def positions(self, epoch: int, position: Positions) -> Positions:
        """The positions in the source of the elements at these positions of a pass."""

    @property
    def looks_back(self) -> int | None:
        return None  # all elements are collected first

    def resolve(self, addresses: Indices) -> Indices:
        position = np.empty_like(addresses.position)
        for epoch in np.unique(addresses.epoch):
            in_epoch = addresses.epoch == epoch
            position[in_epoch] = self.positions(int(epoch), addresses.position[in_epoch])
        return Indices(addresses.epoch, position)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        if self.may_repeat and self.indexable:
            return self._each_computed(epoch, sources[0])
        rows = self.rows_with_places(epoch, sources)
        return ((i, read_only(x)) for i, x in rows) if self.may_repeat else rows

    def _each_computed(self, epoch: int, source: PassFactory) -> Iterator[Row[T]]:
        """Yield the elements, those that come again from further passes over the source.

        A run computes each by its position, so that it shares no memory with the others.
        """
        passes: list[list[T]] = []
        times = Counter[int]()
        order = self.positions(epoch, np.arange(self.length or 0, dtype=np.int64))
        for position, i in enumerate(order.tolist()):
            if times[i] == len(passes):
                passes.append([x for _, x in source(epoch)])
            yield position, passes[times[i]][i]
            times[i] += 1

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        elements = [x for _, x in sources[0](epoch)]
        order = self.positions(epoch, np.arange(self.length or 0, dtype=np.int64))
        for position, i in enumerate(order.tolist()):
            yield position, elements[i]


@frozen_node
class Every(IndexTransform[T, E], Resumable[T, E], Generic[T, E]):
    """Every ``step``-th element, starting with the first."""

    chooses_by_position: ClassVar[bool] = True
    step: int = attrs.field(converter=plain_int, validator=at_least(1))

    @property
    def title(self) -> str:
        return f"[::{self.step}]"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.source.length is None else -(-self.source.length // self.step)

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, addresses.position * self.step)

    def source_position(self, yielded: int) -> SourcePosition:
        read = (yielded - 1) * self.step + 1 if yielded else 0  # up to the last one yielded
        return SourcePosition(ended_passes=0, position=read)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        first = self.step - 1 if yielded else 0  # a resumed source is past the last one yielded
        every = islice(sources[0](epoch), first, None, self.step)
        return enumerate((x for _, x in every), yielded)


@frozen_node
class Backwards(ByNumber[T, E | Reordered], Generic[T, E]):
    """The elements in the opposite order."""

    def __attrs_post_init__(self) -> None:
        known_length("[::-1]", self.source)

    @property
    def title(self) -> str:
        return "[::-1]"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    def positions(self, epoch: int, position: Positions) -> Positions:
        return (self.length or 0) - 1 - position


RowNumbers: TypeAlias = "Sequence[int] | NDArray[np.integer[Any]]"
"""Positions of elements: a list or range of ints, or an array of them with one axis."""


def _row_numbers(value: Any) -> NDArray[np.int64]:
    """An attrs converter: the positions as an array of ints.

    Raises:
        InvalidFlow: They are something else.
    """
    numbers = array_of_numbers("select_rows: positions", value, "ints", "iu")
    largest = np.iinfo(np.int64).max
    if numbers.dtype.kind == "u" and len(too_large := numbers[numbers > largest]):
        raise InvalidFlow(f"select_rows: positions contain {too_large[0]}, which no flow has")
    return numbers.astype(np.int64, casting="same_kind")


def array_of_numbers(argument: str, value: Any, numbers: str, kinds: str) -> NDArray[Any]:
    """A new array with one axis, from a list or an array of numbers.

    ``kinds`` are the characters of the dtypes that are allowed, and ``numbers`` is the word for
    these in messages.

    Raises:
        InvalidFlow: It is something else.
    """
    if not isinstance(value, str | bytes):
        try:
            array = np.array(value if isinstance(value, np.ndarray | range) else list(value))
        except (TypeError, ValueError, OverflowError):
            array = np.array(None)
        if array.ndim == 1 and (array.dtype.kind in kinds or not array.size):
            return array if array.size else np.zeros(0, np.int64)
        value = array if isinstance(value, np.ndarray) else value
    mask = "; np.flatnonzero(mask) makes positions of a mask" if _is_mask(value) else ""
    raise InvalidFlow(
        f"{argument} must be a list of {numbers}, or an array of them with one axis, got "
        f"{brief(value)}{mask}"
    )


def _is_mask(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.bool_


@frozen_node
class SelectRows(ByNumber[T, E | Reordered | Resampled], Generic[T, E]):
    """The elements at some positions, in the order of the positions."""

    chooses_by_position: ClassVar[bool] = True
    numbers: NDArray[np.int64] = attrs.field(converter=_row_numbers, eq=id)

    def __attrs_post_init__(self) -> None:
        rows = known_length("select_rows", self.source)
        numbers = self.numbers
        outside = np.flatnonzero((numbers < -rows) | (numbers >= rows))
        if len(outside):
            first = outside[0]
            raise InvalidFlow(
                f"select_rows: positions[{first}] is {numbers[first]}, and {self.source.title} "
                f"has {rows} elements; {len(outside)} of {len(numbers)} positions are outside"
            )
        positions = np.where(numbers < 0, numbers + rows, numbers)
        object.__setattr__(self, "numbers", read_only(positions))

    @property
    def title(self) -> str:
        return f"select_rows({len(self.numbers)} positions)"

    @property
    def may_repeat(self) -> bool:
        return True

    @property
    @cached_per_node
    def fingerprint(self) -> str:
        return f"{self.title}: {digest_of(self.numbers)}"

    @property
    def length(self) -> int:
        return len(self.numbers)

    def combined_effects(self) -> frozenset[Tag]:
        inherited = self.source.effects
        effects = set(inherited)
        if (np.diff(self.numbers) < 0).any():
            effects.add(Reordered)
        if len(np.unique(self.numbers)) < len(self.numbers) or Reordered in inherited:
            effects.add(Resampled)
        return frozenset(effects)

    def positions(self, epoch: int, position: Positions) -> Positions:
        return self.numbers[position]


def digest_of(numbers: NDArray[Any]) -> str:
    """A digest of an array, for a fingerprint."""
    from hashlib import blake2b  # here: it loads OpenSSL

    return blake2b(numbers.tobytes(), digest_size=8).hexdigest()


def known_length(operator: str, source: AnyNode) -> int:
    """The length of the source of an operator that reads elements by number.

    Raises:
        InvalidFlow: It is unknown, or the source never ends.
    """
    if Endless in source.effects:
        raise InvalidFlow(f"{operator}: {endless_part(source)} never ends; put take(n) before it")
    if source.length is None:
        raise InvalidFlow(
            f"{operator}: {source.title} has no known length; if the elements fit in memory, "
            f"collect them first: fl.from_items(flow.collect())"
        )
    return source.length


def _spelled(rows: slice) -> str:
    """The slice as it is written in Python."""
    parts = [rows.start, rows.stop] if rows.step is None else [rows.start, rows.stop, rows.step]
    return f"flow[{':'.join('' if part is None else brief(part) for part in parts)}]"


def _sliced(node: AnyNode, rows: slice) -> AnyNode:
    """The operators that together are a slice: each is arithmetic on positions."""
    written, step = _spelled(rows), 1 if rows.step is None else rows.step
    for part in (rows.start, rows.stop, step):
        if part is not None and not is_int(part, 1 - POSITION_LIMIT):
            raise InvalidFlow(f"{written}: a slice is of ints, got {brief(part)}")
    if step == 0:
        raise InvalidFlow(f"{written}: the step must not be 0")
    start, stop = rows.start or 0, rows.stop
    if step < 0 or start < 0 or (stop or 0) < 0:
        length = known_length(written, node)
        chosen = range(length)[rows]
        if step < 0:  # the same elements in ascending order; ``Backwards`` reverses them
            chosen = chosen[::-1]
        start, stop = (chosen[0], chosen[-1] + 1) if chosen else (0, 0)
        stop = None if stop == length else stop
    node = Skip[Any, Any](node, start) if start else node
    node = node if stop is None else Take[Any, Any](node, max(0, stop - start))
    node = node if abs(step) == 1 else Every[Any, Any](node, abs(step))
    return node if step > 0 else Backwards[Any, Any](node)


_POSITIONS = "write select_rows(positions)"


class Rows(FlowBase[T, E]):
    """Choosing elements by their positions."""

    @overload
    def __getitem__(self, rows: int | np.integer[Any], /) -> T: ...
    @overload
    def __getitem__(self: FlowBase[T, Unmoved], rows: slice[Any, None, None], /) -> Flow[T, E]: ...
    @overload
    def __getitem__(self, rows: slice[Any, None, None], /) -> Flow[T, E | Resampled]: ...
    @overload
    def __getitem__(
        self: FlowBase[T, Exact], rows: slice[Any, int | None, None], /
    ) -> Flow[T, Exact]: ...
    @overload
    def __getitem__(
        self: FlowBase[T, InOrder], rows: slice[Any, int | None, None], /
    ) -> Flow[T, Unsized]: ...
    @overload
    def __getitem__(
        self: FlowBase[T, Resampled | Endless], rows: slice[Any, int | None, None], /
    ) -> Flow[T, Resampled]: ...
    @overload
    def __getitem__(
        self: FlowBase[T, Resampled | Unsized | Endless], rows: slice[Any, int | None, None], /
    ) -> Flow[T, Resampled | Unsized]: ...
    @overload
    def __getitem__(
        self: FlowBase[T, Counted | Endless], rows: slice[Any, int | None, None], /
    ) -> Flow[T, Counted]: ...
    @overload
    def __getitem__(self, rows: slice[Any, int | None, None], /) -> Flow[T, Finite]: ...
    @overload
    def __getitem__(
        self: FlowBase[T, Unmoved], rows: slice[Any, Any, Any], /
    ) -> Flow[T, E | Reordered]: ...
    @overload
    def __getitem__(self, rows: slice[Any, Any, Any], /) -> Flow[T, E | Reordered | Resampled]: ...
    @overload
    def __getitem__(
        self: FlowBase[T, Counted], rows: RowNumbers, /
    ) -> Flow[T, E | Reordered | Resampled]: ...
    def __getitem__(self: FlowBase[Any, Any], rows: Any, /) -> Any:
        """Choose elements by position, as from a list or an array.

        ``flow[a:b:c]`` is the flow of these elements. Over a random-access flow it is arithmetic on
        positions, and other elements are not read. Bounds count from the end if they are negative,
        and a negative step yields the elements in the opposite order; both need a known length.
        ``flow[[3, 1, 4]]`` is ``select_rows``, and ``flow[i]`` is ``at(i)``: an element of epoch 0.

        Length: as in the same slice of a list; unknown if the source's is unknown.

        Effects: as for ``skip`` and ``take``; with a negative step, ``Reordered``. Type checkers
        do not see the sign of a step: ``shard(c, 0)`` is ``flow[::c]`` with its exact type.

        Errors: ``InvalidFlow`` for a step of 0, for bounds that are not ints, and for negative
        numbers over a flow of unknown length or without end; the errors of ``at``.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(10)
        >>> flow[2:5].collect(), flow[-2:].collect(), flow[::-4].collect(), flow[7]
        ([2, 3, 4], [8, 9], [9, 5, 1], 7)

        Source: slices of Python.
        """
        if isinstance(rows, slice):
            return flow(_sliced(self.node, rows))
        if is_int(rows, 1 - POSITION_LIMIT):
            return self.at(int(rows))
        if isinstance(rows, str | tuple):
            advice = (
                f"components are chosen by .select({rows!r})"
                if isinstance(rows, str)
                else "several positions are a list, flow[[3, 1, 4]]"
            )
            raise InvalidFlow(
                f"flow[{brief(rows)}]: a flow is indexed by positions and slices; {advice}"
            )
        return flow(SelectRows[Any, Any](self.node, rows))

    def __reversed__(self: FlowBase[T, Counted]) -> Iterator[T]:
        """A pass over ``flow[::-1]``."""
        return iter(flow(_sliced(self.node, slice(None, None, -1))))

    @rejects_keywords(
        indices="write select_rows(positions)", indexes="write select_rows(positions)"
    )
    def select_rows(
        self: FlowBase[T, Counted], positions: RowNumbers
    ) -> Flow[T, E | Reordered | Resampled]:
        """Yield the elements at these positions, in their order; also written ``flow[positions]``.

        Negative positions count from the end. Over a random-access flow no other element is
        computed. Over any other flow of known length the elements are collected first. An element
        whose position is listed twice comes twice; its arrays are then read-only.

        Length: the number of positions.

        Effects: ``Reordered`` if the positions do not ascend, ``Resampled`` if some are repeated,
        or after a shuffle: the rows at a position are random. Types have both, as type checkers do
        not see the positions.

        Errors: ``InvalidFlow`` for positions that are not ints or are beyond the end, which are
        named, and for a flow of unknown length or without end.

        >>> import flowdsl as fl
        >>> letters = fl.from_items("abcde")
        >>> letters.select_rows([3, 1, -1]).collect()
        ['d', 'b', 'e']
        >>> letters.select_rows([9])
        Traceback (most recent call last):
            ...
        flowdsl.errors.InvalidFlow: select_rows: positions[0] is 9, and from_items(5 items) has 5 \
elements; 1 of 1 positions are outside

        Source: ``Subset`` of PyTorch, ``select`` of Hugging Face's datasets.

        Elsewhere: tensorpack none; tf.data none; Grain ``MapDataset.__getitem__``; torchdata
        ``Subset``.
        """
        return flow(SelectRows[T, Any](self.node, positions))

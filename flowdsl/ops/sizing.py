"""take, skip, repeat, repeat_each, fixed_size: change the length of a flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, islice, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

import attrs
import numpy as np

from flowdsl.effects import (
    Counted,
    Endless,
    Exact,
    Finite,
    InOrder,
    Resampled,
    Tag,
    Unmoved,
    Unsized,
)
from flowdsl.elements.read_only import read_only
from flowdsl.errors import EndlessFlow, InvalidFlow
from flowdsl.nodes import (
    AnyNode,
    E,
    Failed,
    FlowBase,
    IndexTransform,
    Indices,
    PassFactory,
    Reshardable,
    Restartable,
    RestartPoint,
    Restarts,
    Resumable,
    Row,
    SourcePosition,
    T,
    at_least,
    cached_per_node,
    epoch_of_pass,
    flow,
    frozen_node,
    is_int,
    plain_int,
    position_after_reshard,
    rejects_keywords,
    validate_flag,
)

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@frozen_node
class Take(IndexTransform[T, E], Resumable[T, E], Generic[T, E]):
    """The first ``n`` elements."""

    bounds: ClassVar[bool] = True
    chooses_by_position: ClassVar[bool] = True
    keeps_positions: ClassVar[bool] = True
    n: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"take({self.n})"

    @property
    @cached_per_node
    def length(self) -> int | None:
        if Endless in self.source.effects:
            return self.n
        return None if self.source.length is None else min(self.n, self.source.length)

    def resolve(self, addresses: Indices) -> Indices:
        return addresses

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        # A batch above counts its last group as full, so more than ``n`` may have been yielded.
        return islice(sources[0](epoch), max(0, self.n - yielded))


@frozen_node
class Skip(IndexTransform[T, E], Resumable[T, E], Generic[T, E]):
    """All elements but the first ``n``."""

    chooses_by_position: ClassVar[bool] = True
    n: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"skip({self.n})"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.source.length is None else max(0, self.source.length - self.n)

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, addresses.position + self.n)

    def source_position(self, yielded: int) -> SourcePosition:
        read = yielded + self.n if yielded else 0  # skipped with the first element
        return SourcePosition(ended_passes=0, position=read)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        to_skip = 0 if yielded else self.n  # a resumed source is past them
        return enumerate((x for _, x in islice(sources[0](epoch), to_skip, None)), yielded)


class _Repeating(IndexTransform[T, E], Resumable[T, E], Reshardable[T, E], Generic[T, E]):
    """Consecutive passes over the source, each with its own epoch."""

    def resolve(self, addresses: Indices) -> Indices:
        if self.source.length is None:  # the first pass over an endless source never ends
            return Indices(
                epoch_of_pass(addresses.epoch, np.zeros_like(addresses.epoch)), addresses.position
            )
        passes, position = divmod(addresses.position, max(self.source.length, 1))
        return Indices(epoch_of_pass(addresses.epoch, passes), position)

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        saved_length, length = saved_flow.sources[0].length, self.source.length
        if not saved_length or not length:
            return None
        passes, saved_position = divmod(position, saved_length)
        saved_source = saved_flow.sources[0]
        if passes and position_after_reshard(self.source, saved_source, saved_length) != length:
            return None
        in_pass = position_after_reshard(self.source, saved_source, saved_position)
        return None if in_pass is None else passes * length + in_pass

    def source_position(self, yielded: int) -> SourcePosition:
        # Only where no operator below leaves elements out: there, length None means endless.
        return SourcePosition.over_passes(yielded, self.source.length)


@frozen_node
class Repeat(_Repeating[T, E | Resampled], Generic[T, E]):
    """``n`` consecutive passes, each with its own epoch."""

    n: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"repeat({self.n})"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.source.length is None else self.n * self.source.length

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        passes = (sources[0](_inner_epoch(epoch, k)) for k in range(ended_passes, self.n))
        return enumerate((x for rows in passes for _, x in rows), yielded)


@frozen_node
class RepeatForever(_Repeating[T, E | Resampled | Endless], Generic[T, E]):
    """Endless consecutive passes, each with its own epoch."""

    def __attrs_post_init__(self) -> None:
        if self.source.length == 0:
            raise InvalidFlow(
                "repeat: its source has no elements, so repeating it without end would never yield "
                "one; write repeat(n), or use a source that has elements"
            )

    @property
    def title(self) -> str:
        return "repeat()"

    @property
    def length(self) -> int | None:
        return None

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch, yielded, ended_passes, sources[0]), yielded)

    def _elements(
        self, epoch: int, yielded: int, ended_passes: int, source: PassFactory
    ) -> Iterator[T]:
        for k in count(ended_passes):
            is_resumed = k == ended_passes and yielded  # then it has yielded elements before
            empty = not is_resumed
            for _, x in source(_inner_epoch(epoch, k)):
                empty = empty and _is_failure(x)
                yield x
            if empty:
                raise EndlessFlow(
                    f"repeat: pass {k} had no elements, and continuing might never yield one; "
                    f"write repeat(n), or check what is filtered or left out"
                )


def _is_failure(x: object) -> bool:
    return isinstance(x, Failed)


@frozen_node
class RepeatEach(IndexTransform[T, E | Resampled], Restartable[T, E | Resampled], Generic[T, E]):
    """Every element ``n`` times in a row."""

    repeats_elements: ClassVar[bool] = True
    n: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"repeat_each({self.n})"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.source.length is None else self.n * self.source.length

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, addresses.position // self.n)

    @property
    def looks_back(self) -> int | None:
        return 1  # an element that is not yielded ``n`` times yet

    def restart_point(self, yielded: int) -> RestartPoint:
        position = yielded // max(self.n, 1)
        return RestartPoint(yielded=position * self.n, position=position)

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[T]]:
        source = restarts.before_each(sources[0])
        rows = source(epoch)
        elements = (y for _, x in rows for y in map(read_only, repeat(x, self.n)))
        return enumerate(elements, restarts.yielded)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return enumerate(y for _, x in sources[0](epoch) for y in repeat(x, self.n))


@frozen_node
class FixedSize(IndexTransform[T, E | Resampled], Generic[T, E]):
    """Exactly ``n`` elements in every pass, from as many passes over the source as needed."""

    bounds: ClassVar[bool] = True
    n: int = attrs.field(converter=plain_int, validator=at_least(0))
    keep_state: bool = attrs.field(validator=validate_flag)

    def __attrs_post_init__(self) -> None:
        if self.n and self.source.length == 0:
            raise InvalidFlow(
                f"fixed_size: its source has no elements, so it can never yield {self.n}"
            )

    @property
    def title(self) -> str:
        return f"fixed_size({self.n}{'' if self.keep_state else ', keep_state=False'})"

    @property
    def length(self) -> int:
        return self.n

    def combined_effects(self) -> frozenset[Tag]:
        return super().combined_effects() - {Endless, Unsized}

    def resolve(self, addresses: Indices) -> Indices:
        continues = (addresses.epoch <= self._last_continuing_epoch) & self.keep_state
        start = np.where(continues, addresses.epoch, 0) * self.n
        if self.source.length is None:  # the first pass over an endless source never ends
            passes, position = np.zeros_like(addresses.epoch), start + addresses.position
        else:
            passes, position = divmod(start + addresses.position, max(self.source.length, 1))
        return Indices(
            np.where(continues, passes, epoch_of_pass(addresses.epoch, passes)), position
        )

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        first_pass, start = 0, 0
        continues = self.keep_state and epoch <= self._last_continuing_epoch
        if continues:
            start = epoch * self.n
            if self.source.length is not None:
                first_pass, start = divmod(start, max(self.source.length, 1))
        epochs = ((k, k if continues else _inner_epoch(epoch, k)) for k in count(first_pass))
        passes = (self._pass(k, sources[0](inner)) for k, inner in epochs)
        return enumerate(islice(chain.from_iterable(passes), start, start + self.n))

    @property
    def _last_continuing_epoch(self) -> int:
        """The last epoch that continues the previous one, with ``keep_state``."""
        return _MAX_ELEMENTS_BEFORE // max(self.n, 1)

    def _pass(self, k: int, rows: Iterator[Row[T]]) -> Iterator[T]:
        empty = True
        for _, x in rows:
            empty = False
            yield x
        if empty:
            raise EndlessFlow(
                f"fixed_size: pass {k} of its source had no elements, and continuing might never "
                f"yield {self.n}; check what is filtered or left out"
            )


_MAX_ELEMENTS_BEFORE = 2**40
"""An epoch of ``fixed_size`` continues the previous one if at most this number of elements comes
before it. In epoch 1 or later of an outer ``repeat``, the epoch is a hash far above this limit and
has no previous epoch, so it begins with a new pass."""


def _inner_epoch(epoch: int, k: int) -> int:
    """The source's epoch in pass ``k`` of an epoch."""
    return int(epoch_of_pass(np.array([epoch]), np.array([k]))[0])


_REPEAT = "write repeat({n}), or repeat() to repeat without end"


class Sizing(FlowBase[T, E]):
    """Operators that change the length of a flow."""

    @overload
    def take(self: FlowBase[T, Exact], n: int) -> Flow[T, Exact]: ...
    @overload
    def take(  # type: ignore[overload-overlap]  # only Exact fits both overloads: the first wins
        self: FlowBase[T, InOrder], n: int
    ) -> Flow[T, Unsized]: ...
    @overload
    def take(self: FlowBase[T, Resampled | Endless], n: int) -> Flow[T, Resampled]: ...
    @overload
    def take(  # type: ignore[overload-overlap]  # types that fit both overloads fit an earlier one
        self: FlowBase[T, Resampled | Unsized | Endless], n: int
    ) -> Flow[T, Resampled | Unsized]: ...
    @overload
    def take(self: FlowBase[T, Counted | Endless], n: int) -> Flow[T, Counted]: ...
    @overload
    def take(self, n: int) -> Flow[T, Finite]: ...
    @rejects_keywords(count="write take({n})")
    def take(self: FlowBase[Any, Any], n: int) -> Flow[Any, Any]:
        """Yield the first ``n`` elements, or all if there are fewer.

        Not more than ``n`` elements are read.

        Length: ``n``, or the source's if that is smaller; unknown if the source's is unknown.

        Effects: ends an endless flow. After a shuffle, ``Resampled``: the rows that come first are
        random, so the result is not a permutation of a fixed set of rows.

        Errors: ``InvalidFlow`` for ``n < 0``.

        >>> import flowdsl as fl
        >>> fl.from_range(3).repeat().take(5).collect()
        [0, 1, 2, 0, 1]

        Source: ``take`` of functional programming.

        Elsewhere: tensorpack ``FixedSizeData``, with ``keep_state=False``; tf.data ``take``; Grain
        ``slice(slice(n))``, ``LimitIterDataset``; torchdata ``Header``.
        """
        return flow(Take[Any, Any](self.node, n))

    @overload
    def skip(self: FlowBase[T, Unmoved], n: int) -> Flow[T, E]: ...
    @overload
    def skip(self, n: int) -> Flow[T, E | Resampled]: ...
    @rejects_keywords(count="write skip({n})")
    def skip(self: FlowBase[Any, Any], n: int) -> Flow[Any, Any]:
        """Skip the first ``n`` elements, and yield the others.

        Over a random-access flow, skipped elements are not read.

        Length: ``n`` less than the source's, or 0; unknown if the source's is unknown.

        Effects: none. After a shuffle, ``Resampled``: the rows that come first are random, so the
        rest is not a permutation of a fixed set of rows.

        Errors: ``InvalidFlow`` for ``n < 0``.

        >>> import flowdsl as fl
        >>> fl.from_range(5).skip(3).collect()
        [3, 4]

        Source: ``drop`` of functional programming.

        Elsewhere: tensorpack none; tf.data ``skip``; Grain ``slice(slice(n, None))``; torchdata
        none.
        """
        return flow(Skip[Any, Any](self.node, n))

    @overload
    def repeat(self, n: None = None) -> Flow[T, E | Resampled | Endless]: ...
    @overload
    def repeat(self, n: int) -> Flow[T, E | Resampled]: ...
    @rejects_keywords(count=_REPEAT, num_epochs=_REPEAT, num=_REPEAT)
    def repeat(self, n: int | None = None) -> Flow[Any, Any]:
        """Repeat the flow for ``n`` consecutive passes; without ``n``, without end.

        Each pass has its own epoch: shuffles and random draws below it differ between passes, and
        batches formed below it do not reach from one pass into the next.

        Length: ``n`` times the source's, unknown if that is unknown; without ``n``, endless.

        Effects: ``Resampled``, and ``Endless`` without ``n``.

        Errors: ``InvalidFlow`` for ``n < 0``, or without ``n`` over an empty source;
        ``EndlessFlow`` without ``n`` if a pass is empty.

        >>> import flowdsl as fl
        >>> fl.from_range(3).batch(2).repeat(2).collect()
        [array([0, 1]), array([2]), array([0, 1]), array([2])]

        Source: ``RepeatedData`` of tensorpack.

        Elsewhere: tensorpack ``RepeatedData``; tf.data ``repeat``; Grain ``repeat``; torchdata
        ``Cycler``.
        """
        if n is None:
            return flow(RepeatForever(self.node))
        if is_int(n, 0) and n == 0:  # an empty flow needs no elements of its source
            return flow(Take(self.node, 0))
        return flow(Repeat(self.node, n))

    def repeat_each(self, n: int) -> Flow[T, E | Resampled]:
        """Yield every element ``n`` times in a row.

        The ``n`` copies are equal: random operators below draw once for all of them. They share
        their arrays, which are read-only; lists, dicts and records are separate copies. A
        ``shuffle(buffer)`` above spreads the copies over its window.

        Length: ``n`` times the source's; unknown if that is unknown.

        Effects: ``Resampled``.

        Errors: ``InvalidFlow`` for ``n < 0``.

        >>> import flowdsl as fl
        >>> fl.from_range(3).repeat_each(2).collect()
        [0, 0, 1, 1, 2, 2]

        Source: ``RepeatedDataPoint`` of tensorpack; Choi et al., "Faster Neural Network Training
        with Data Echoing", 2019.

        Elsewhere: tensorpack ``RepeatedDataPoint``; tf.data none; Grain none; torchdata
        ``Repeater``.
        """
        if is_int(n, 0) and n == 0:  # an empty flow needs no elements of its source
            return flow(Take(self.node, 0))
        return flow(RepeatEach(self.node, n))

    @overload
    def fixed_size(
        self: FlowBase[T, Unmoved], n: int, keep_state: bool = True
    ) -> Flow[T, Resampled]: ...
    @overload
    def fixed_size(self, n: int, keep_state: bool = True) -> Flow[T, Counted]: ...
    @rejects_keywords(size="write fixed_size({n})")
    def fixed_size(self: FlowBase[Any, Any], n: int, keep_state: bool = True) -> Flow[Any, Any]:
        """Yield exactly ``n`` elements in every pass, for any number of elements in the source.

        With ``keep_state``, epoch ``k`` continues where epoch ``k - 1`` stopped in the sequence of
        the source's epochs: over random access by arithmetic, over a stream by reading all earlier
        elements again. Otherwise every epoch starts with a new pass over the source. If a pass over
        the source ends, the next one follows. Within epoch 1 or later of an outer ``repeat``, the
        passes over this operator have no order, so each of them starts with a new pass.

        Length: ``n``.

        Effects: ``Resampled``; no longer ``Unsized`` or ``Endless``.

        Errors: ``InvalidFlow`` for ``n < 0``, or a source known to be empty; ``EndlessFlow`` if a
        pass over the source is empty.

        >>> import flowdsl as fl
        >>> flow = fl.from_items([1, 2, 3, 4, 5]).fixed_size(3)
        >>> [list(run) for run in flow.epochs(3)]
        [[1, 2, 3], [4, 5, 1], [2, 3, 4]]

        Source: ``FixedSizeData`` of tensorpack.

        Elsewhere: tensorpack ``FixedSizeData``; tf.data none; Grain none; torchdata none.
        """
        return flow(FixedSize[Any, Any](self.node, n, keep_state))

"""shard: the part of a flow for one of several jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, overload

import attrs

from flowdsl.effects import Endless, Resampled, Unmoved
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    AnyNode,
    E,
    FlowBase,
    IndexTransform,
    Indices,
    PassFactory,
    Reshardable,
    Resumable,
    Row,
    SourcePosition,
    T,
    at_least,
    cached_per_node,
    flow,
    frozen_node,
    plain_int,
    rejects_keywords,
)

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@frozen_node
class Shard(IndexTransform[T, E], Resumable[T, E], Reshardable[T, E], Generic[T, E]):
    """Every ``n``-th element, starting with the ``i``-th."""

    chooses_by_position: ClassVar[bool] = True
    n: int = attrs.field(converter=plain_int, validator=at_least(1))
    i: int = attrs.field(converter=plain_int, validator=at_least(0))

    def __attrs_post_init__(self) -> None:
        if self.i >= self.n:
            raise InvalidFlow(
                f"shard: i must be below n, got {self.title}; the shards of {self.n} are numbered "
                f"from 0 to {self.n - 1}"
            )

    @property
    def title(self) -> str:
        return f"shard({self.n}, {self.i})"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.source.length is None else -((self.i - self.source.length) // self.n)

    @property
    def fingerprint(self) -> str:
        return "shard"  # without n and i, so that a state fits any shard

    @property
    def shard(self) -> tuple[int, int]:
        return self.n, self.i

    def first_of(self, n: int) -> AnyNode:
        return attrs.evolve(self, n=n, i=0)

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        if not isinstance(saved_flow, Shard):
            return None
        yielded, rows = position * saved_flow.n, self.source.length
        if rows is not None and yielded > rows - rows % saved_flow.n:
            return None  # some shards have no element at this position
        return None if yielded % self.n else yielded // self.n

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, addresses.position * self.n + self.i)

    def source_position(self, yielded: int) -> SourcePosition:
        read = (yielded - 1) * self.n + self.i + 1 if yielded else 0  # up to the last one yielded
        return SourcePosition(ended_passes=0, position=read)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        first = self.n - 1 if yielded else self.i  # a resumed source is past the last one yielded
        shard = islice(sources[0](epoch), first, None, self.n)
        return enumerate((x for _, x in shard), yielded)


Even: TypeAlias = Literal["drop", "pad"]
"""The way to equally long shards: without the last elements, or with repeated first elements."""


@frozen_node
class EvenShard(Shard[T, E | Resampled], Generic[T, E]):
    """Every ``n``-th element, where all ``n`` shards have equally many."""

    even: Even

    def __attrs_post_init__(self) -> None:
        if self.even not in ("drop", "pad"):
            raise InvalidFlow(f"shard: even must be None, 'drop' or 'pad', got {self.even!r}")
        super().__attrs_post_init__()
        if Endless in self.source.effects:
            raise InvalidFlow(
                f"shard: its source never ends, so its shards do not differ in length; write "
                f"shard({self.n}, {self.i}) without even="
            )
        if self.source.length is None:
            raise InvalidFlow(
                f"shard: the length of its source is unknown, so {self.n} shards cannot be made "
                f"equally long; store the rows in a file, whose length is known, or take equally "
                f"many with .repeat().take(n) before .shard"
            )

    @property
    def title(self) -> str:
        return f"shard({self.n}, {self.i}, even={self.even!r})"

    @property
    def note(self) -> str | None:
        rows = self.source.length or 0
        remaining, missing = rows % self.n, -rows % self.n
        if not remaining:
            return None
        if self.even == "drop":
            return f"leaves out {remaining} of {rows:,} elements of each pass"
        return f"repeats elements {missing} time(s) in each pass of {rows:,}"

    @property
    @cached_per_node
    def length(self) -> int:
        rows = self.source.length or 0
        return rows // self.n if self.even == "drop" else -(-rows // self.n)

    def resolve(self, addresses: Indices) -> Indices:
        every = super().resolve(addresses)
        return Indices(every.epoch, every.position % max(self.source.length or 0, 1))

    def source_position(self, yielded: int) -> SourcePosition:
        read = super().source_position(yielded).position
        return SourcePosition.over_passes(read, self.source.length)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        left = self.length - yielded
        if not left:
            return iter(())
        passes = (sources[0](epoch) for _ in range(ended_passes, self._passes))
        rows = super().rows_after(
            epoch, yielded, ended_passes, [lambda _: chain.from_iterable(passes)]
        )
        return islice(rows, left)

    @property
    def _passes(self) -> int:
        """The number of passes over the source that the last shard reads, with ``"pad"``."""
        return -(-self.length * self.n // max(self.source.length or 0, 1))


class Sharding(FlowBase[T, E]):
    """The operator that divides a flow among jobs."""

    @overload
    def shard(self: FlowBase[T, Unmoved], n: int, i: int, even: None = None) -> Flow[T, E]: ...
    @overload
    def shard(self, n: int, i: int, even: Even | None = None) -> Flow[T, E | Resampled]: ...
    @rejects_keywords(
        num_shards="write shard({n}, i)",
        index="write shard(n, {n})",
        num_replicas="write shard({n}, i)",
        rank="write shard(n, {n})",
    )
    def shard(self: FlowBase[Any, Any], n: int, i: int, even: Even | None = None) -> Flow[Any, Any]:
        """Yield every ``n``-th element, starting with the ``i``-th: a part for one of ``n`` jobs.

        The shards 0 to ``n - 1`` have no row in common and together contain all rows; their lengths
        differ by at most one. Over a random-access flow, rows of other shards are not read.

        Jobs that synchronize after every element, as in distributed training, must have equally
        many elements: ``even="drop"`` leaves out the last elements if they are too few for all
        shards; ``even="pad"`` repeats the first elements of the pass at its end. ``explain()``
        shows the number of these elements.

        Length: the source's divided by ``n``, rounded up for the first shards and down for the
        others, with ``even`` down or up for all of them; unknown if the source's is unknown.

        Effects: none. With ``even``, ``Resampled``: some rows are left out or repeated. After a
        shuffle, ``Resampled``: the rows of a shard are random and differ between epochs; shard
        before the shuffle to keep the rows of each shard fixed.

        Errors: ``InvalidFlow`` for ``n < 1``, ``i`` not from 0 to ``n - 1``, another ``even``, or
        ``even`` for a source of unknown length or without end.

        >>> import flowdsl as fl
        >>> [fl.from_range(5).shard(2, i).collect() for i in range(2)]
        [[0, 2, 4], [1, 3]]
        >>> [fl.from_range(5).shard(2, i, even="drop").collect() for i in range(2)]
        [[0, 2], [1, 3]]
        >>> [fl.from_range(5).shard(2, i, even="pad").collect() for i in range(2)]
        [[0, 2, 4], [1, 3, 0]]

        Source: ``shard`` of tf.data; ``drop_last`` of PyTorch's ``DistributedSampler``.

        Elsewhere: tensorpack none; tf.data ``shard``; Grain ``slice(slice(i, None, n))``; torchdata
        ``ShardingFilter``, ``DistributedSampler``.
        """
        if even is not None:
            return flow(EvenShard[Any, Any](self.node, n, i, even))
        return flow(Shard[Any, Any](self.node, n, i))

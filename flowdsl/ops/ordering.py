"""shuffle, cache: put elements in a random order, or keep the elements of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, TypeVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Counted, Endless, Finite, Reordered
from flowdsl.elements.specs import Spec
from flowdsl.elements.structure import read_only
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    Buffering,
    E,
    FlowBase,
    Indices,
    KeepsPass,
    Node,
    PassFactory,
    PassThrough,
    Positions,
    Provenance,
    Row,
    SkippedByProbe,
    T,
    Traceable,
    at_least,
    cached_per_node,
    flow,
    format_call,
    generator,
    keyword_unless_default,
    permute,
    plain_int,
    rejects_keywords,
    validate_flag,
)
from flowdsl.ops.rows import ByNumber

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")


@attrs.frozen(repr=False)
class Shuffle(ByNumber[T, E | Reordered], Generic[T, E]):
    """All elements, or blocks of elements, in a random order."""

    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""
    block: int = attrs.field(converter=plain_int, validator=at_least(1), default=1)
    reshuffle: bool = attrs.field(validator=validate_flag, default=True)
    """False if every epoch has the order of epoch 0."""

    def __attrs_post_init__(self) -> None:
        if self.source.length is None:
            endless = Endless in self.source.effects
            has = "never ends" if endless else "has no known length"
            collected = "fl.from_items(flow.collect()).shuffle()"
            other = f"if they fit in memory, collect them first: {collected}"
            raise InvalidFlow(
                f"shuffle: {self.source.title} {has}, and a shuffle of all elements needs to know "
                f"how many there are. Write shuffle(buffer=n) to shuffle within a window of n "
                f"elements; or {'put take(n) before it' if endless else other}"
            )

    @property
    def order_varies_by_epoch(self) -> bool | None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]  # a class has a constant, or decides
        return True if self.reshuffle else None

    @property
    def title(self) -> str:
        return format_call(
            "shuffle",
            keyword_unless_default("seed", self.seed, 0),
            keyword_unless_default("block", self.block, 1),
            keyword_unless_default("reshuffle", self.reshuffle, True),
        )

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    def positions(self, epoch: int, position: Positions) -> Positions:
        n, key = self.length or 0, f"{self.seed}/{self.salt}/{epoch if self.reshuffle else 0}"
        if self.block == 1 or not len(position):
            return permute(position, n, key)
        # The blocks start at another offset in each epoch, so that elements get other neighbours,
        # and other elements come last, in the incomplete block.
        start = permute(np.zeros(1, np.int64), n, f"{key}/start")
        blocks = n // self.block
        place, within = np.divmod(position, self.block)
        whole = place < blocks
        place[whole] = permute(place[whole], blocks, key)
        moved: Positions = (start + place * self.block + within) % n
        return moved


@attrs.frozen(repr=False)
class WindowShuffle(PassThrough[T, E | Reordered], Buffering[T, E | Reordered], Generic[T, E]):
    """Each element is drawn at random from the next ``buffer`` elements that were not drawn yet."""

    source: Node[T, E]
    buffer: int = attrs.field(converter=plain_int, validator=at_least(1))
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""
    reshuffle: bool = attrs.field(validator=validate_flag, default=True)
    """False if every epoch has the order of epoch 0."""

    @property
    def order_varies_by_epoch(self) -> bool | None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]  # a class has a constant, or decides
        return True if self.reshuffle else None

    @property
    def title(self) -> str:
        return format_call(
            "shuffle",
            f"buffer={self.buffer}",
            keyword_unless_default("seed", self.seed, 0),
            keyword_unless_default("reshuffle", self.reshuffle, True),
        )

    @property
    def yields_all(self) -> bool:
        return True

    @property
    def holds(self) -> int:
        return self.buffer

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch, sources))

    def _elements(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[T]:
        rng = generator(self.seed, self.salt, epoch if self.reshuffle else 0, 0)
        window: list[T] = []
        for _, x in sources[0](epoch):
            window.append(x)
            if len(window) == self.buffer:
                yield _draw(window, rng)
        while window:
            yield _draw(window, rng)


def _draw(window: list[Any], rng: np.random.Generator) -> Any:
    i = int(rng.integers(len(window)))
    window[i], window[-1] = window[-1], window[i]
    return window.pop()


@attrs.define(eq=False)
class Kept(Generic[A]):
    """The cached rows of the first complete pass, shared by a flow's nodes within one process."""

    rows: list[Row[A]] | None = None

    def keep(self, rows: list[Row[A]]) -> None:
        """Keep the rows of a complete pass, unless another pass was complete before."""
        if self.rows is None:
            self.rows = rows

    def forget(self, rows: list[Row[A]]) -> None:
        """Drop these rows: their pass failed after the last row."""
        if self.rows is rows:
            self.rows = None

    def __reduce__(self) -> tuple[type[Kept[A]], tuple[()]]:
        return Kept, ()  # each process has its own cache


@attrs.frozen(repr=False)
class Cache(KeepsPass[T, E], Traceable[T, E], SkippedByProbe[T, E], Generic[T, E]):
    """Epoch 0 of its source in every pass: computed once, then kept in memory."""

    source: Node[T, E]
    kept: Kept[Any] = attrs.field(factory=Kept[Any], eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if Endless in self.source.effects:
            raise InvalidFlow(
                "cache: its source never ends, so its first pass is never complete; put cache() "
                "before the repeat, or take(n) before cache()"
            )

    order_varies_by_epoch: ClassVar[bool | None] = False

    @property
    def title(self) -> str:
        return "cache()"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    @property
    def looks_back(self) -> int | None:
        return 0

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        kept = self.kept.rows
        if kept is not None:
            for position, x in kept:
                yield position, read_only(x)
            return
        rows: list[Row[T]] = []
        try:
            for position, x in sources[0](0):
                rows.append((position, read_only(x, _own)))
                if len(rows) == self.length:  # a take(n) above does not read to the end
                    self.kept.keep(rows)
                yield position, read_only(rows[-1][1])
        except Exception:
            self.kept.forget(rows)
            raise
        self.kept.keep(rows)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return sources[0](0)

    def made_of(self, addresses: Indices) -> Provenance:
        return Provenance.one_each(Indices(np.zeros_like(addresses.epoch), addresses.position))


def _own(array: NDArray[Any]) -> NDArray[Any]:
    """The array for the cache, read-only: copied if it is a view.

    A view keeps the whole memory behind it alive. Arrays from workers are views of shared memory,
    and a process can keep only a limited number of shared memory blocks.
    """
    kept: NDArray[Any] = read_only(array if array.flags.owndata else array.copy(order="K"))
    return kept


class Ordering(FlowBase[T, E]):
    """Operators that change the order of elements, or cache them."""

    @overload
    def shuffle(
        self: FlowBase[T, Counted],
        buffer: None = None,
        *,
        seed: int = 0,
        block: int = 1,
        reshuffle: bool = True,
    ) -> Flow[T, E | Reordered]: ...
    @overload
    def shuffle(
        self, buffer: int, *, seed: int = 0, reshuffle: bool = True
    ) -> Flow[T, E | Reordered]: ...
    @overload  # never matches: its argument is what a type checker says of any other flow
    def shuffle(self, *, it_may_never_end_or_its_length_is_unknown: Never) -> Never: ...
    @rejects_keywords(  # type: ignore[misc]  # nothing reaches the last overload
        buffer_size="write shuffle(buffer={n})",
        reshuffle_each_iteration="write reshuffle={}",
    )
    def shuffle(  # pyright: ignore[reportInconsistentOverload]  # nothing reaches the last
        self: FlowBase[Any, Any],
        buffer: int | None = None,
        *,
        seed: int = 0,
        block: int = 1,
        reshuffle: bool = True,
    ) -> Flow[Any, Any]:
        """Put the elements in a random order: all of them, or within a window of ``buffer``.

        Without ``buffer`` the order is a pseudo-random permutation of all elements. Over a
        random-access flow positions are permuted by arithmetic: no element moves or is kept in
        memory. Over any other flow of known length the elements are collected first. With
        ``buffer``, as needed for streams, each element is drawn from a window of ``buffer``
        elements, which are kept in memory. Every epoch has its own order, which depends on the seed
        and the number of operators below. With ``reshuffle=False`` every epoch has the order of
        epoch 0, and no elements are kept for that, as ``cache`` above a shuffle would.

        With ``block``, groups of ``block`` consecutive elements stay together and in order: only
        the blocks move. So a file that is larger than the memory is read in long stretches, which
        is as fast as reading it in order if a block has some megabytes. ``shuffle(buffer=n)`` above
        it, with an ``n`` of several blocks, mixes them:
        ``flow.shuffle(block=100).shuffle(buffer=1000)``. The blocks start at another offset in each
        epoch; elements that do not fill a block come last.

        Length: the source's; unknown if that is unknown.

        Effects: ``Reordered``.

        Errors: ``InvalidFlow`` for a negative seed, ``buffer < 1``, ``block < 1``, ``buffer``
        together with ``block``, or a global shuffle of a flow of unknown length. If the elements
        fit into memory, shuffle ``fl.from_items(flow.collect())``; ``cache`` does not help, as its
        length is unknown before the first pass.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(6).shuffle(seed=1)
        >>> flow.collect(), list(flow.epoch(1))
        ([2, 1, 3, 4, 5, 0], [0, 4, 3, 1, 2, 5])
        >>> fl.from_range(9).shuffle(seed=1, block=3).collect()
        [0, 1, 2, 6, 7, 8, 3, 4, 5]
        >>> flow = fl.from_range(6).shuffle(seed=1, reshuffle=False)
        >>> flow.collect() == list(flow.epoch(1))
        True

        Source: ``LocallyShuffleData`` of tensorpack, ``RandomShuffleQueue`` of TensorFlow,
        ``reshuffle_each_iteration`` of tf.data; the
        global order is a Feistel permutation, see ``randomness.permute``.

        Elsewhere: tensorpack ``LocallyShuffleData``; tf.data ``shuffle``; Grain ``shuffle``,
        ``WindowShuffleIterDataset``; torchdata ``Shuffler``, ``RandomSampler``.
        """
        salt = self.node.depth
        if buffer is None:
            return flow(Shuffle(self.node, seed, salt, block, reshuffle))
        if block != 1:
            raise InvalidFlow(
                f"shuffle: buffer={buffer!r} and block={block!r} exclude each other; write "
                f"shuffle(block=n).shuffle(buffer=m) to move blocks first and then mix them"
            )
        return flow(WindowShuffle(self.node, buffer, seed, salt, reshuffle))

    @rejects_keywords(filename="it keeps the elements in memory; write_lmdb keeps them in a file")
    def cache(self: FlowBase[T, Finite]) -> Flow[T, E]:
        """Keep the elements of the first complete pass in memory, and yield them in later passes.

        Every pass yields epoch 0 of the flow below: random operators below draw once, and operators
        above draw again in each epoch, as in ``cache().shuffle()``. A pass that was ended early or
        failed is not cached: write ``take(n).cache()``, and not ``cache().take(n)``. The elements
        are kept for this flow and all flows that are chained to it, in the consumer's process, as
        long as one of these flows exists; an array that is a view, of a batch or of a worker's
        result, is kept as a copy. Arrays are read-only, also in the first pass. For the operators
        above, it is a stream: a ``shuffle`` collects it.

        Length: the source's; unknown if that is unknown.

        Effects: none.

        Errors: ``InvalidFlow`` for an endless flow.

        >>> import flowdsl as fl
        >>> calls = []
        >>> flow = fl.from_range(2).map(lambda i: calls.append(i) or -i).cache()
        >>> list(flow), list(flow), calls
        ([0, -1], [0, -1], [0, 1])

        Source: ``CacheData`` of tensorpack.

        Elsewhere: tensorpack ``CacheData``; tf.data ``cache``; Grain ``CacheIterDataset``;
        torchdata ``InMemoryCacheHolder``.
        """
        return flow(Cache[T, Any](self.node))

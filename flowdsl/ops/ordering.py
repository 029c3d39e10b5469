"""shuffle: put elements in a random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, overload

import attrs
import numpy as np

from flowdsl.effects import Counted, Endless, Reordered
from flowdsl.elements.specs import Spec
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    Buffering,
    E,
    FlowBase,
    Node,
    PassFactory,
    PassThrough,
    Positions,
    Row,
    T,
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


@attrs.frozen(eq=False, repr=False, slots=False)
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


@attrs.frozen(eq=False, repr=False, slots=False)
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


class Ordering(FlowBase[T, E]):
    """Operators that change the order of elements."""

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

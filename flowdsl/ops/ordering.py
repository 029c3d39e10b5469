"""shuffle: put elements in a random order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import compress, islice
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
    Restartable,
    Restarts,
    Row,
    T,
    at_least,
    cached_per_node,
    flow,
    format_call,
    frozen_node,
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


@frozen_node
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
            reason = "never ends" if endless else "has no known length"
            collected = "fl.from_items(flow.collect()).shuffle()"
            if_it_fits = f"if they fit in memory, collect them first: {collected}"
            raise InvalidFlow(
                f"shuffle: {self.source.title} {reason}, and a shuffle of all elements needs to "
                f"know how many there are. Write shuffle(buffer=n) to shuffle within a window of n "
                f"elements; or {'put take(n) before it' if endless else if_it_fits}"
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
        whole_blocks = n // self.block
        block, within = np.divmod(position, self.block)
        in_whole = block < whole_blocks
        block[in_whole] = permute(block[in_whole], whole_blocks, key)
        moved: Positions = (start + block * self.block + within) % n
        return moved


@frozen_node
class WindowShuffle(
    PassThrough[T, E | Reordered],
    Restartable[T, E | Reordered],
    Buffering[T, E | Reordered],
    Generic[T, E],
):
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

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[T]]:
        mark = restarts.mark()  # before ``sources[0]`` begins the passes of operators below
        restarts.note(mark, restarts.yielded, restarts.offset)
        draws = generator(self.seed, self.salt, epoch if self.reshuffle else 0, position=0)
        rows = sources[0](epoch)
        window = _Window[T](self.buffer, draws, rows, restarts, read=restarts.offset)
        window.marks.append((restarts.offset, mark))
        return enumerate(window.elements(restarts.yielded), restarts.yielded)


_BLOCK = 64
"""The number of draws at a time: a call for one draw takes longer than to exchange two elements."""
_DRAWS_REPEATED_AT_A_TIME = 1 << 20


@attrs.define(eq=False)
class _Window(Generic[T]):
    """A pass of a shuffle within a window.

    The problem: which elements wait in the window depends on all draws before. To resume without
    reading the pass again, the window has to be filled with the same elements.

    The choice: until the source ends, each draw exchanges one of the first ``buffer - 1`` elements
    of the window with the newest one. So a slot has the element that was the newest when the slot
    was drawn last, or its first element if it was never drawn. The numbers of all elements in the
    window follow from the draws, which take nanoseconds each; no element is computed for this. A
    pass begins again at the oldest element in the window, and skips elements that are not in it.
    """

    buffer: int
    draws: np.random.Generator
    rows: Iterator[Row[T]]
    restarts: Restarts
    read: int
    """The number of elements of the source that were read, or come before the restart."""
    window: list[Any] = attrs.field(factory=list[Any], init=False)
    numbers: Positions = attrs.field(init=False)
    """The numbers of the elements in the first ``buffer - 1`` slots, once these are full."""
    marks: deque[tuple[int, object]] = attrs.field(factory=deque[Any], init=False)
    """Numbers of elements, each with the mark from before that element was read."""

    def elements(self, yielded: int) -> Iterator[T]:
        """Yield the elements after the first ``yielded`` ones."""
        buffer, draws, begin = self.buffer, self.draws, self.read
        window = self.window = self._filled_again(yielded) if yielded else self._filled()
        last_note, every = yielded, max(2 * _BLOCK, buffer // 8)
        while True:
            state_before = draws.bit_generator.state
            if self.read > begin:
                self._mark()
            drawn = draws.integers(buffer, size=_BLOCK)
            for count, slot in enumerate(drawn.tolist()):
                row = next(self.rows, None)
                if row is None:  # take back the draws that were not used
                    draws.bit_generator.state = state_before
                    draws.integers(buffer, size=count)
                    yield from self._rest()
                    return
                window.append(row[1])
                del row  # the consumer releases it first
                yield _taken_out(window, slot)
            self.read += _BLOCK
            self._note_draws(drawn, yielded)
            yielded += _BLOCK
            if yielded - last_note >= every:
                self._note(yielded)
                last_note = yielded

    def _rest(self) -> Iterator[T]:
        """Yield the elements in the window, when the source has ended."""
        window = self.window
        while window:
            yield _taken_out(window, int(self.draws.integers(len(window))))

    def _note_draws(self, drawn: Positions, before: int) -> None:
        """Note which elements are in the slots that were drawn, after ``before`` other draws."""
        to_slot = drawn < self.buffer - 1  # else the newest element itself was drawn
        newest = np.flatnonzero(to_slot) + (self.buffer - 1 + before)
        np.maximum.at(self.numbers, drawn[to_slot], newest)  # a slot may be drawn several times

    def _filled(self) -> list[T]:
        """Read the first elements; fewer than a window holds if the source has ended."""
        window: list[T] = []
        while size := min(_BLOCK, self.buffer - 1 - len(window)):
            if window:
                self._mark()
            window += (x for _, x in islice(self.rows, size))
            read_now, self.read = len(window) - self.read, len(window)
            if read_now < size:
                break
        self.numbers = np.arange(len(window))
        return window

    def _filled_again(self, yielded: int) -> list[T]:
        """Repeat the first draws of the pass, and read the elements that are in the window then."""
        self.numbers, begin = np.arange(self.buffer - 1), self.read
        for done in range(0, yielded, _DRAWS_REPEATED_AT_A_TIME):
            count = min(_DRAWS_REPEATED_AT_A_TIME, yielded - done)
            self._note_draws(self.draws.integers(self.buffer, size=count), done)
        window: list[Any] = [None] * len(self.numbers)
        # The slot of each element from the restart on; -1 if it is not in the window.
        slots = np.full(self.buffer - 1 + yielded - begin, -1)
        slots[self.numbers - begin] = np.arange(len(window))
        for k in range(0, len(slots), _BLOCK):
            if k:
                self._mark()
            for slot, (_, x) in zip(slots[k : k + _BLOCK].tolist(), self.rows, strict=False):
                if slot >= 0:
                    window[slot] = x
                self.read += 1
        was_read = (self.numbers < self.read).tolist()  # not all if the source has become shorter
        return list(compress(window, was_read))

    def _mark(self) -> None:
        """Keep the mark from before the next element."""
        self.marks.append((self.read, self.restarts.mark()))

    def _note(self, yielded: int) -> None:
        """Note that the pass can begin again at the oldest element in the window."""
        marks, oldest = self.marks, int(self.numbers.min(initial=self.read))
        while len(marks) > 1 and marks[1][0] <= oldest:
            marks.popleft()
        number, mark = marks[0]
        self.restarts.note(mark, yielded, offset=number)


def _taken_out(window: list[A], slot: int) -> A:
    """Take an element out of a window, and put the last one into its slot."""
    window[slot], window[-1] = window[-1], window[slot]
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
    @overload  # matches no call: in a checker's error for other flows, its argument is the advice
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
        epoch 0; unlike with ``cache`` above a shuffle, no elements are kept for that.

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
        ``reshuffle_each_iteration`` of tf.data; the global order is a Feistel permutation, see
        ``randomness.permute``.

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

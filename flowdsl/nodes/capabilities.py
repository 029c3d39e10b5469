"""Optional abilities of an operator, besides giving its elements.

A node derives from a class for each ability that it has, and ``isinstance`` asks for it. Where a
node lacks one, a run makes elements again, or what was asked of it is refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeAlias, final

import attrs

from flowdsl.nodes.base import A, AnyNode, E, Failed, Node, PassFactory, Row, T

# -- to resume -------------------------------------------------------------------------------------


class Resumable(Node[T, E], Generic[T, E]):
    """Resumes a pass after a number of elements, without making them again."""

    @abstractmethod
    def rows_after(
        self, epoch: int, given: int, over: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        """The rows of a pass that come after the first ``given``.

        By then ``over`` passes of the source had ended. The runtime starts the next one after the
        elements that were taken from it; later passes are whole.
        """

    @final
    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return self.rows_after(epoch, 0, 0, sources)

    def taken(self, given: int) -> tuple[int, int]:
        """After ``given`` elements: the ended passes of its source, and what was taken of the next.

        It is arithmetic, valid only where nothing below leaves elements out.
        """
        return 0, given


class Reshardable(Node[T, E], Generic[T, E]):
    """Can resume over another number of shards than a state was saved with."""

    @abstractmethod
    def same_place(self, there: AnyNode, position: int) -> int | None:
        """The position where this flow, over a shard, resumes after ``there`` came to ``position``.

        ``there`` is this flow over another number of shards, which all stand at that position.
        None if no position here continues exactly where those shards stopped.
        """


def same_place(node: AnyNode, there: AnyNode, position: int) -> int | None:
    """``Reshardable.same_place`` of any node: None if the node is not ``Reshardable``."""
    return node.same_place(there, position) if isinstance(node, Reshardable) else None


class OneShot(Node[T, E], Generic[T, E]):
    """Gives each element once, as it arrives, such as from a queue: no later pass repeats it."""

    @property
    def length(self) -> int | None:
        return None

    @property
    def replayable(self) -> bool:
        return False


# -- to be probed ----------------------------------------------------------------------------------


class Transparent(Node[T, E], Generic[T, E]):
    """Gives the elements of its source in epoch 0, so that a probe can skip this node."""

    @property
    def unseen(self) -> AnyNode:
        """The node that a probe reads instead, so that its elements are not reported or kept."""
        return self.sources[0]


# -- to be traced ----------------------------------------------------------------------------------

ResumePlaces: TypeAlias = tuple[Any, ...]
"""Where an element came from, in the order in which that is in it; only the runtime reads them."""


@attrs.frozen
class Traced(Generic[A]):
    """An element, and the places that it came from."""

    element: A
    places: ResumePlaces
    of_row: Callable[[int], ResumePlaces] | None = None
    """The places of each row of a batch; None where all rows have all places."""


def trace(element: A, members: Sequence[ResumePlaces], stacked: bool = False) -> Traced[A] | A:
    """The element with the places of all its members, which are its rows if they are ``stacked``.

    A failure stays one, as operators tell it by its class.
    """
    if isinstance(element, Failed):
        return element
    places = tuple(chain.from_iterable(members))
    return Traced(element, places, members.__getitem__ if stacked else None)


@attrs.define
class Reader:
    """Begins passes over a source of traced elements, and gives the elements themselves."""

    source: PassFactory
    latest: deque[Row[Traced[Any]]] = attrs.field(factory=deque[Row[Traced[Any]]])
    """All that was read, or the last of it."""

    def __call__(self, epoch: int) -> Iterator[Row[Any]]:
        for position, x in self.source(epoch):
            self.latest.append((position, x if isinstance(x, Traced) else Traced(x, ())))
            yield position, x.element if isinstance(x, Traced) else x


class Traceable(Node[T, E], Generic[T, E]):
    """Says what each element is made of as it makes a pass again, where positions do not tell."""

    @abstractmethod
    def traced(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        """``rows``, from sources of traced elements: each is traced to all that it is made of.

        A ``Reader`` gives the elements of such a source, and ``trace`` traces what is made of them.
        """


class PassThrough(Traceable[T, E], Generic[T, E]):
    """Gives elements of its sources without looking at them: traced ones come out as they were."""

    def traced(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return self.rows(epoch, sources)


class OneByOne(Traceable[T, E], Generic[T, E]):
    """Makes each element of the one that it has read last, of every source."""

    def traced(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        readers = [Reader(source, deque(maxlen=1)) for source in sources]
        for position, y in self.rows(epoch, readers):
            yield position, trace(y, [x.places for read in readers for _, x in read.latest])


# -- to be bounded ---------------------------------------------------------------------------------


class Buffering(Node[T, E], Generic[T, E]):
    """Keeps elements of its source for a while, which count against ``prefetch(memory=)``."""

    @property
    @abstractmethod
    def holds(self) -> int:
        """How many elements of its source it keeps at a time."""

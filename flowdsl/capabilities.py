"""What an operator may be able to do besides giving its elements.

A node derives from these where it can. Whoever needs one asks for it by ``isinstance``; of a node
without it, a run makes elements again, or says that it cannot go on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, final

import attrs

from flowdsl.node import AnyNode, E, Node, Passes, Row, T

# -- to resume -------------------------------------------------------------------------------------


@attrs.frozen
class Continuing(Node[T, E], Generic[T, E]):
    """Goes on with a pass after some elements, from their number, without making them again."""

    @abstractmethod
    def rows_after(
        self, epoch: int, given: int, over: int, sources: Sequence[Passes]
    ) -> Iterator[Row[T]]:
        """The rows of a pass that come after the first ``given``.

        By then ``over`` passes of the source were over. Of the next one the runtime has the source
        give only what had not been taken of it; of each later one, all.
        """

    @final
    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[T]]:
        return self.rows_after(epoch, 0, 0, sources)

    def taken(self, given: int) -> tuple[int, int]:
        """After so many elements: the passes of its source that were over, and the elements of one.

        Where nothing below leaves elements out, so that it is arithmetic.
        """
        return 0, given


@attrs.frozen
class Reshardable(Node[T, E], Generic[T, E]):
    """Tells where it goes on over shards of another number than a state was saved with."""

    @abstractmethod
    def same_place(self, there: AnyNode, position: int) -> int | None:
        """Where this flow goes on, over a shard, after what ``there`` has given by a position.

        ``there`` is this flow over shards of another number, all of which stand at that position.
        None where no position here follows just what they gave.
        """


def same_place(node: AnyNode, there: AnyNode, position: int) -> int | None:
    """``Reshardable.same_place`` of any node: None where it cannot tell."""
    return node.same_place(there, position) if isinstance(node, Reshardable) else None


@attrs.frozen
class Live(Node[T, E], Generic[T, E]):
    """Gives what comes, once, such as from a queue: no later pass comes by what was delivered."""


# -- to be probed ----------------------------------------------------------------------------------


@attrs.frozen
class Transparent(Node[T, E], Generic[T, E]):
    """Gives, in epoch 0, the elements of its source: a probe need not come through it."""

    @property
    def unseen(self) -> AnyNode:
        """What a probe reads in its place, so that nobody sees, or keeps, the elements it makes."""
        return self.sources[0]


# -- to be bounded ---------------------------------------------------------------------------------


@attrs.frozen
class Holding(Node[T, E], Generic[T, E]):
    """Keeps elements of its source for a while, which count against ``prefetch(memory=)``."""

    @property
    @abstractmethod
    def holds(self) -> int:
        """How many of them at a time."""

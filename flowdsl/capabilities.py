"""Optional abilities of an operator, besides giving its elements.

A node derives from a class for each ability that it has, and ``isinstance`` asks for it. Where a
node lacks one, a run makes elements again, or says that it cannot go on.
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
    """Resumes a pass after a number of elements, without making them again."""

    @abstractmethod
    def rows_after(
        self, epoch: int, given: int, over: int, sources: Sequence[Passes]
    ) -> Iterator[Row[T]]:
        """The rows of a pass that come after the first ``given``.

        By then ``over`` passes of the source had ended. The runtime starts the next one after the
        elements that were taken from it; later passes are whole.
        """

    @final
    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[T]]:
        return self.rows_after(epoch, 0, 0, sources)

    def taken(self, given: int) -> tuple[int, int]:
        """After ``given`` elements: the ended passes of its source, and what was taken of the next.

        It is arithmetic, valid only where nothing below leaves elements out.
        """
        return 0, given


@attrs.frozen
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


@attrs.frozen
class Live(Node[T, E], Generic[T, E]):
    """Gives each element once, as it arrives, such as from a queue: no later pass repeats it."""

    @property
    def length(self) -> int | None:
        return None

    @property
    def replayable(self) -> bool:
        return False


# -- to be probed ----------------------------------------------------------------------------------


@attrs.frozen
class Transparent(Node[T, E], Generic[T, E]):
    """Gives the elements of its source in epoch 0, so that a probe can skip this node."""

    @property
    def unseen(self) -> AnyNode:
        """The node that a probe reads instead, so that its elements are not reported or kept."""
        return self.sources[0]


# -- to be bounded ---------------------------------------------------------------------------------


@attrs.frozen
class Holding(Node[T, E], Generic[T, E]):
    """Keeps elements of its source for a while, which count against ``prefetch(memory=)``."""

    @property
    @abstractmethod
    def holds(self) -> int:
        """How many elements of its source it keeps at a time."""

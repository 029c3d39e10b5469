"""The reference interpreter: runs a flow in one process, without optimizations.

It defines the meaning of a flow: every other way to run it must yield the same elements.
"""

from __future__ import annotations

from collections.abc import Iterator

from flowdsl.effects import Effect
from flowdsl.nodes import Node, T


def interpret(node: Node[T, Effect], epoch: int = 0) -> Iterator[T]:
    """Yield the elements of one pass, in order: the reference sequence.

    >>> from flowdsl.ops.sources import FromRange
    >>> list(interpret(FromRange(3)))
    [0, 1, 2]
    """
    return (element for _, element in node.reference(epoch))

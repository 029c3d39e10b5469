"""The meaning of a flow: one process, no tricks. Every other way to run it must give the same."""

from __future__ import annotations

from collections.abc import Iterator

from flowdsl.effects import Effect
from flowdsl.nodes import Node, T


def interpret(node: Node[T, Effect], epoch: int = 0) -> Iterator[T]:
    """The elements of one pass, in order: the reference sequence.

    >>> from flowdsl.ops.sources import FromRange
    >>> list(interpret(FromRange(3)))
    [0, 1, 2]
    """
    return (element for _, element in node.reference(epoch))

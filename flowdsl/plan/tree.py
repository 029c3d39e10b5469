"""Walking and rebuilding a tree of nodes, whatever the operators in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flowdsl.kinds import Elementwise, Grouping, IndexedSource, Indexing, Joining, Merging
from flowdsl.node import AnyNode, with_sources


def rewrite(node: AnyNode, change: Callable[[AnyNode], AnyNode]) -> AnyNode:
    """Apply ``change`` to every node, sources first."""
    return change(with_sources(node, tuple(rewrite(source, change) for source in node.sources)))


def walk(node: AnyNode) -> Iterator[AnyNode]:
    """Every node in the order that elements meet them: sources first."""
    for source in node.sources:
        yield from walk(source)
    yield node


def beside(
    meaning: AnyNode, program: AnyNode, deep: int = 0
) -> Iterator[tuple[AnyNode, AnyNode, int]]:
    """The walk through two trees alike, down to where either ends.

    With the number of flows that a node is inside of, as an argument.
    """
    for k, pair in enumerate(zip(meaning.sources, program.sources, strict=False)):
        yield from beside(*pair, deep + (k > 0))
    yield meaning, program, deep


def runs_in_worker(node: AnyNode) -> bool:
    """Whether a process that holds only some consecutive elements can run this operator."""
    if isinstance(node, Elementwise):
        return node.source.dense or not node.counts
    if isinstance(node, Grouping) and not node.indexable:
        return node.source.dense and node.stride == node.n
    return node.indexable


def bases_of(node: AnyNode) -> tuple[AnyNode, ...]:
    """The parts of what workers are to run that only this process can, in the order of the walk.

    They are one stream, or any number of random-access flows whose rows lie in this process.
    """
    if isinstance(node, Elementwise | Grouping) and runs_in_worker(node):
        return bases_of(node.source)
    if isinstance(node, Indexing | Merging | Joining) and node.indexable:
        each = [bases_of(source) for source in node.sources]
        if all(base and base[0] is part for base, part in zip(each, node.sources, strict=True)):
            return (node,)  # it chooses among rows that are here: what it chooses travels
        return tuple(base for bases in each for base in bases)
    if isinstance(node, IndexedSource) and node.portable:
        return ()
    return (node,)


def has_work(node: AnyNode) -> bool:
    """Whether workers could do some of what makes these elements."""
    return any(map(is_work, walk(node)))


def is_work(node: AnyNode) -> bool:
    """Whether workers could run this operator, and it is worth the way to them."""
    light = isinstance(node, Elementwise) and node.light
    return not light and runs_in_worker(node) and all(base is not node for base in bases_of(node))

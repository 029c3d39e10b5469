"""Walking and rebuilding a tree of nodes, whatever the operators in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from flowdsl.node import AnyNode, Elementwise, Grouping, IndexedSource, Indexing, Node


def with_sources(node: AnyNode, sources: tuple[AnyNode, ...]) -> AnyNode:
    """The same operator with the same arguments over other sources."""
    if all(old is new for old, new in zip(node.sources, sources, strict=True)):
        return node
    remaining = iter(sources)
    changes: dict[str, object] = {}
    for field in attrs.fields(type(node)):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            changes[field.name] = next(remaining)
        elif isinstance(value, tuple) and any(isinstance(x, Node) for x in value):
            changes[field.name] = tuple(
                next(remaining) if isinstance(x, Node) else x for x in value
            )
    return attrs.evolve(node, **changes)


def rewrite(node: AnyNode, change: Callable[[AnyNode], AnyNode]) -> AnyNode:
    """Apply ``change`` to every node, sources first."""
    return change(with_sources(node, tuple(rewrite(source, change) for source in node.sources)))


def walk(node: AnyNode) -> Iterator[AnyNode]:
    """Every node in the order that elements meet them: sources first."""
    for source in node.sources:
        yield from walk(source)
    yield node


def runs_in_worker(node: AnyNode) -> bool:
    """Whether a process that holds only some consecutive elements can run this operator."""
    if node.indexable or isinstance(node, Elementwise):
        return True
    return isinstance(node, Grouping) and node.source.dense


def base_of(node: AnyNode) -> AnyNode | None:
    """The part of what workers are to run that only this process can; None if there is none."""
    if isinstance(node, Elementwise | Grouping) and runs_in_worker(node):
        return base_of(node.source)
    if isinstance(node, Indexing) and node.indexable:
        base = base_of(node.source)
        return node if base is node.source else base
    if isinstance(node, IndexedSource) and node.portable:
        return None
    return node

"""Steps: the operators of a flow at their places in it; and tests which of them workers can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import Any, overload

import attrs

from flowdsl.nodes import (
    AnyNode,
    Batched,
    Elementwise,
    Identity,
    IndexedMap,
    IndexedSource,
    IndexTransform,
    Joining,
    Merging,
    Placement,
    Windowed,
    with_sources,
)
from flowdsl.resources.any_depth import any_depth


@attrs.frozen(eq=False)
class Step:
    """An operator at its place in a flow.

    A rule that moves an operator makes a new node over other sources; the step keeps its number,
    which distinguishes it from others of the same title.
    """

    node: AnyNode
    sources: tuple[Step, ...]
    number: int
    """The operator's number in the flow as written, from 1; 0 for an argument of ``prefetch``."""
    depth: int
    """The number of operators in whose arguments this flow is nested."""

    def at(self, path: Sequence[int]) -> Step:
        """The step at the end of a path: the index of the source to follow, at each step."""
        step = self
        for source in path:
            step = step.sources[source]
        return step

    def with_sources(self, *sources: Step, **changes: Any) -> Step:
        """The operator over other sources, with ``changes`` of its arguments."""
        node = with_sources(self.node, tuple(source.node for source in sources))
        if node is self.node and not changes:
            return self
        node = attrs.evolve(node, **changes) if changes else node
        return attrs.evolve(self, node=node, sources=sources)


def steps_of(node: AnyNode) -> Step:
    """The steps of a flow as it is written."""
    return _step(node, count(1), depth=0)


@any_depth
def _step(node: AnyNode, numbers: Iterator[int], depth: int) -> Step:
    sources = tuple(
        _step(source, numbers, depth + 1 if k else depth)  # the first source is the chain itself
        for k, source in enumerate(node.sources)
    )
    return Step(node, sources, 0 if is_of_prefetch(node) else next(numbers), depth)


def is_of_prefetch(node: AnyNode) -> bool:
    """Return True if the node represents an argument of ``prefetch``, and not an operator.

    A call of ``prefetch`` becomes several nodes, one for the workers and one for each argument such
    as ``ordered`` or ``on_error``. They do not compute elements, so they get no numbers.
    """
    return isinstance(node, Identity) or (isinstance(node, Elementwise) and node.cheap)


@overload
def walk(tree: Step) -> list[Step]: ...
@overload
def walk(tree: AnyNode) -> list[AnyNode]: ...
def walk(tree: Any) -> list[Any]:
    """Every step, or node, in the order in which elements pass them: sources first."""
    visited, waiting = list[Any](), [tree]
    while waiting:  # not recursive, so that a chain can have any depth
        visited.append(part := waiting.pop())
        waiting += part.sources
    return visited[::-1]


@any_depth
def rewrite(step: Step, change: Callable[[Step], Step]) -> Step:
    """Apply ``change`` to every step, sources first."""
    return change(step.with_sources(*(rewrite(source, change) for source in step.sources)))


def runs_in_worker(node: AnyNode) -> bool:
    """Return True if a process that has only some consecutive elements can run this operator."""
    if isinstance(node, Elementwise):
        return node.source.positions_are_contiguous or not isinstance(node, IndexedMap)
    if isinstance(node, Windowed) and not node.indexable:
        return node.source.positions_are_contiguous and isinstance(node, Batched)
    return node.indexable


@any_depth
def bases_of(step: Step, by_threads: bool = False) -> tuple[Step, ...]:
    """The parts of a flow for workers that only this process can run, in the order of ``walk``.

    They are one stream, or any number of random-access flows whose rows are in this process. With
    ``by_threads``, the workers are threads of it, and read the rows that threads may share.
    """
    node = step.node
    if isinstance(node, Elementwise | Windowed) and runs_in_worker(node):
        return bases_of(step.sources[0], by_threads)
    if isinstance(node, IndexTransform | Merging | Joining) and node.indexable:
        bases = [bases_of(source, by_threads) for source in step.sources]
        if all(found == (part,) for found, part in zip(bases, step.sources, strict=True)):
            return (step,)  # it chooses among rows in this process: only chosen rows are sent
        return tuple(chain.from_iterable(bases))
    if isinstance(node, IndexedSource):
        can_open = node.shared_by_threads if by_threads else not node.in_memory
        return () if can_open else (step,)
    return (step,)


@any_depth
def rows_sent(step: Step) -> float:
    """The number of elements that workers receive for one of theirs, if they run this step.

    It is 0 if they read all rows by themselves. An operator of several flows counts as if it took
    each element from the flow that needs most, and ``zip`` takes one from each.
    """
    node, bases = step.node, bases_of(step)
    if not bases or bases == (step,):
        return len(bases)
    below = list(map(rows_sent, step.sources))
    return sum(below) if isinstance(node, Joining) else max(below) * _rows_of(node)


def _rows_of(node: AnyNode) -> int:
    return node.n if isinstance(node, Windowed) else 1


def has_work(step: Step) -> bool:
    """Return True if workers could run some operator up to this step."""
    return any(map(is_for_workers, walk(step)))


def is_for_workers(step: Step) -> bool:
    """Return True if workers could run this operator, and it is worth sending elements to them."""
    node = step.node
    is_cheap = isinstance(node, Elementwise) and node.cheap
    return (
        not is_cheap and runs_in_worker(node) and all(base is not step for base in bases_of(step))
    )


def only_reads_stream(step: Step) -> bool:
    """Return True if a prefetch over this step only reads a stream ahead: it has no other work."""
    return not from_positions(step.node) and _is_read_here(step) and not has_own_work(step)


@any_depth
def _is_read_here(step: Step) -> bool:
    """Return True if the step reads a stream other than the results of prefetches below it."""
    if isinstance(step.node, Placement):
        return False
    return not step.sources or from_positions(step.node) or any(map(_is_read_here, step.sources))


@any_depth
def from_positions(node: AnyNode) -> bool:
    """Return True if a flow is random-access, or elementwise over a random-access flow."""
    if isinstance(node, Elementwise) and not isinstance(node, IndexedMap):
        return from_positions(node.source)
    return node.indexable


@any_depth
def has_own_work(step: Step) -> bool:
    """Return True if there is work for workers, without the work of prefetches below."""
    if isinstance(step.node, Placement):
        return False
    return is_for_workers(step) or any(map(has_own_work, step.sources))

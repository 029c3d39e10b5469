"""A program: the operators of a stage, run over some of their positions.

The same code runs in a worker process and in the consumer's own, so where an element is made can
not change what it is. Addresses are resolved downwards, a block at a time, with arrays; elements
are then made upwards, one at a time and only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import ElementError
from flowdsl.node import (
    Addresses,
    AnyNode,
    Dropped,
    Elementwise,
    Grouping,
    IndexedSource,
    Indexing,
    Joining,
    Merging,
    Positions,
    Row,
)
from flowdsl.plan.lower import Supplied
from flowdsl.stacking import Allocate

Path: TypeAlias = tuple[int, ...]
"""The way from a program's end down to an operator: which source to follow, at each."""


class OperatorFailed(Exception):
    """An operator raised; ``__cause__`` is what it raised. Never leaves the runtime."""

    def __init__(self, path: Path, epoch: int, position: int) -> None:
        """``path`` leads to the operator that failed."""
        super().__init__(path, epoch, position)
        self.path = path
        self.epoch = epoch
        self.position = position


@attrs.define
class Program:
    """One process's hold on the operators of a stage, with what they have open."""

    root: AnyNode
    allocate: Allocate | None = None
    _readers: dict[Path, Callable[[int], Any]] = attrs.field(factory=dict[Path, Any], init=False)
    _last: list[AnyNode] = attrs.field(init=False)
    """The operators whose output leaves the program: only their arrays are worth placing."""

    def __attrs_post_init__(self) -> None:
        self._last = list(_last(self.root))

    def rows(self, at: Addresses, supplied: Sequence[Iterable[Any]] = ()) -> Iterator[Row[Any]]:
        """Make the elements at these addresses, in their order, with their positions.

        ``supplied`` are the elements that they are made of, of each base, in the order in which
        they are used (see ``needed``).

        Raises:
            OperatorFailed: At the place of the element that failed.
            SourceError: A source can not be opened any more.
        """
        return self._rows(self.root, at, [iter(elements) for elements in supplied], ())

    def _rows(
        self, node: AnyNode, at: Addresses, supplied: Supply, path: Path
    ) -> Iterator[Row[Any]]:
        if isinstance(node, Elementwise):
            return self._elementwise(node, at, supplied, path)
        if isinstance(node, Grouping):
            return self._grouping(node, at, supplied, path)
        if isinstance(node, Indexing):
            return self._indexing(node, at, supplied, path)
        if isinstance(node, Merging):
            return self._merging(node, at, supplied, path)
        if isinstance(node, Joining):
            return self._joining(node, at, supplied, path)
        if isinstance(node, IndexedSource):
            return self._read(node, at, path)
        assert isinstance(node, Supplied), f"{node.title} can not run in a program"
        return zip(at.position.tolist(), supplied[node.slot], strict=False)

    def _indexing(
        self, node: Indexing[Any, Any], at: Addresses, supplied: Supply, path: Path
    ) -> Iterator[Row[Any]]:
        there, fresh = distinct(node.resolve(at))
        elements = (x for _, x in self._rows(node.source, there, supplied, (*path, 0)))
        if len(there.position) == len(at.position):
            return zip(at.position.tolist(), elements, strict=False)
        return zip(at.position.tolist(), _held(elements, fresh.tolist()), strict=False)

    def _elementwise(
        self, node: AnyNode, at: Addresses, supplied: Supply, path: Path
    ) -> Iterator[Row[Any]]:
        steps: list[tuple[Path, Elementwise[Any, Any, Any]]] = []
        while isinstance(node, Elementwise):
            steps.insert(0, (path, node))
            node, path = node.source, (*path, 0)
        rows = self._rows(node, at, supplied, path)
        for epoch, (position, x) in zip(at.epoch.tolist(), rows, strict=False):
            for path, step in steps:
                try:
                    x = step.apply(x, epoch, position)
                except Exception as error:
                    raise OperatorFailed(path, epoch, position) from error
                if isinstance(x, Dropped):
                    break
            else:
                yield position, x

    def _grouping(
        self, node: Grouping[Any, Any, Any], at: Addresses, supplied: Supply, path: Path
    ) -> Iterator[Row[Any]]:
        members, fresh, shared = members_of(node, at)
        elements = (x for _, x in self._rows(node.source, members, supplied, (*path, 0)))
        allocate = self.allocate if any(node is last for last in self._last) else None
        group: list[Any] = []
        of_each = (at.epoch, at.position, fresh, shared)
        groups = zip(*(column.tolist() for column in of_each), strict=True)
        for epoch, position, new, old in groups:
            group = group[len(group) - old :] + list(islice(elements, new))
            if not group or (node.drop_remainder and len(group) < node.n):
                return  # a stream ended
            try:
                y = node.gather(group, allocate)
            except Exception as error:
                raise OperatorFailed(path, epoch, position) from error
            yield position, y

    def _merging(
        self, node: Merging[Any, Any], at: Addresses, supplied: Supply, path: Path
    ) -> Iterator[Row[Any]]:
        part, there = node.resolve(at)
        streams = [
            self._rows(source, there.where(part == k), supplied, (*path, k))
            for k, source in enumerate(node.parts)
        ]
        for position, k in zip(at.position.tolist(), part.tolist(), strict=True):
            for _, x in islice(streams[k], 1):
                yield position, x

    def _joining(
        self, node: Joining[Any, Any], at: Addresses, supplied: Supply, path: Path
    ) -> Iterator[Row[Any]]:
        parts = (
            self._rows(source, at, supplied, (*path, k)) for k, source in enumerate(node.parts)
        )
        for epoch, rows in zip(at.epoch.tolist(), zip(*parts, strict=True), strict=False):
            position = rows[0][0]
            try:
                y = node.gather([x for _, x in rows])
            except Exception as error:
                raise OperatorFailed(path, epoch, position) from error
            yield position, y

    def _read(self, node: IndexedSource[Any], at: Addresses, path: Path) -> Iterator[Row[Any]]:
        read = self._readers.get(path)
        if read is None:
            read = self._readers[path] = node.open()
        for epoch, position in zip(at.epoch.tolist(), at.position.tolist(), strict=True):
            try:
                x = read(position)
            except Exception as error:
                raise OperatorFailed(path, epoch, position) from error
            yield position, x


Supply: TypeAlias = list[Iterator[Any]]


def _last(node: AnyNode) -> Iterator[AnyNode]:
    if isinstance(node, Indexing | Merging | Joining):
        for source in node.sources:
            yield from _last(source)
    else:
        yield node


def distinct(at: Addresses) -> tuple[Addresses, NDArray[np.bool_]]:
    """The addresses without those that repeat the one before, and which these are not."""
    fresh = np.ones(len(at.position), np.bool_)
    fresh[1:] = (np.diff(at.position) != 0) | (np.diff(at.epoch) != 0)
    return at.where(fresh), fresh


def _held(elements: Iterator[Any], fresh: list[bool]) -> Iterator[Any]:
    """Each element until the next is asked for."""
    element: Any = None
    for new in fresh:
        if new:
            element = next(elements)
        yield element


def members_of(
    node: Grouping[Any, Any, Any], at: Addresses
) -> tuple[Addresses, Positions, Positions]:
    """The addresses of the rows that these groups are made of.

    With how many each group adds, and how many it shares with the one before it, which are made
    once. The last group of a pass may have fewer than ``n`` in all.
    """
    first = at.position * node.stride
    fresh, shared = np.full(len(first), node.n), np.zeros(len(first), np.int64)
    if node.source.length is not None:
        fresh = np.clip(node.source.length - first, 0, node.n)
    if node.stride < node.n:
        ahead = np.diff(at.position) * node.stride
        overlap = (np.diff(at.epoch) == 0) & (ahead >= 0) & (ahead < node.n)
        shared[1:][overlap] = node.n - ahead[overlap]
    fresh, first = fresh - shared, first + shared
    within = np.arange(fresh.sum()) - np.repeat(np.cumsum(fresh) - fresh, fresh)
    return Addresses(np.repeat(at.epoch, fresh), np.repeat(first, fresh) + within), fresh, shared


def needed(node: AnyNode, at: Addresses) -> dict[int, Addresses]:
    """Where the elements stand, in each base, that these elements of a program are made of."""
    if isinstance(node, Supplied):
        return {node.slot: at}
    if isinstance(node, Merging):
        part, there = node.resolve(at)
        each = [needed(p, there.where(part == k)) for k, p in enumerate(node.parts)]
    elif isinstance(node, Grouping):
        each = [needed(node.source, members_of(node, at)[0])]
    elif isinstance(node, Indexing):
        each = [needed(node.source, distinct(node.resolve(at))[0])]
    else:
        each = [needed(source, at) for source in node.sources]
    return {slot: there for one in each for slot, there in one.items()}


def failure_in(meaning: AnyNode, path: Path, epoch: int, position: int) -> ElementError:
    """The error that names the operator that failed and the row its element came from."""
    for source in path:
        meaning = meaning.sources[source]
    return meaning.failure(epoch, position)

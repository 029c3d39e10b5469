"""A program: the operators of a stage, run over some of their positions.

The same code runs in a worker process and in the consumer's own, so where an element is made can
not change what it is. Addresses are resolved downwards, a block at a time, with arrays; elements
are then made upwards, one at a time and only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import attrs
import numpy as np

from flowdsl.errors import ElementError
from flowdsl.node import (
    Addresses,
    AnyNode,
    Dropped,
    Elementwise,
    Grouping,
    IndexedSource,
    Indexing,
    Row,
)
from flowdsl.plan.lower import Supplied
from flowdsl.stacking import Allocate


class OperatorFailed(Exception):
    """An operator raised; ``__cause__`` is what it raised. Never leaves the runtime."""

    def __init__(self, height: int, epoch: int, position: int) -> None:
        """``height`` counts the operators between the one that failed and the program's end."""
        super().__init__(height, epoch, position)
        self.height = height
        self.epoch = epoch
        self.position = position


@attrs.define
class Program:
    """One process's hold on the operators of a stage, with what they have open."""

    root: AnyNode
    allocate: Allocate | None = None
    _readers: dict[int, Callable[[int], Any]] = attrs.field(factory=dict[int, Any], init=False)
    _last: AnyNode = attrs.field(init=False)
    """The operator whose output leaves the program: only its arrays are worth placing."""

    def __attrs_post_init__(self) -> None:
        self._last = self.root
        while isinstance(self._last, Indexing):
            self._last = self._last.source

    def rows(self, at: Addresses, supplied: Iterable[Any] = ()) -> Iterator[Row[Any]]:
        """Make the elements at these addresses, in their order, with their positions.

        ``supplied`` are the elements of the base that they are made of, in the order in which they
        are used (see ``base_addresses``).

        Raises:
            OperatorFailed: At the place of the element that failed.
            SourceError: A source can not be opened any more.
        """
        return self._rows(self.root, at, iter(supplied), 0)

    def _rows(
        self, node: AnyNode, at: Addresses, supplied: Iterator[Any], height: int
    ) -> Iterator[Row[Any]]:
        if isinstance(node, Elementwise):
            return self._elementwise(node, at, supplied, height)
        if isinstance(node, Grouping):
            return self._grouping(node, at, supplied, height)
        if isinstance(node, Indexing):
            inner = self._rows(node.source, node.resolve(at), supplied, height + 1)
            return zip(at.position.tolist(), (x for _, x in inner), strict=False)
        if isinstance(node, IndexedSource):
            return self._read(node, at, height)
        assert isinstance(node, Supplied), f"{node.title} can not run in a program"
        return zip(at.position.tolist(), supplied, strict=False)

    def _elementwise(
        self, node: AnyNode, at: Addresses, supplied: Iterator[Any], height: int
    ) -> Iterator[Row[Any]]:
        steps: list[tuple[int, Elementwise[Any, Any, Any]]] = []
        while isinstance(node, Elementwise):
            steps.insert(0, (height, node))
            node, height = node.source, height + 1
        rows = self._rows(node, at, supplied, height)
        for epoch, (position, x) in zip(at.epoch.tolist(), rows, strict=False):
            for height, step in steps:
                try:
                    x = step.apply(x, epoch, position)
                except Exception as error:
                    raise OperatorFailed(height, epoch, position) from error
                if isinstance(x, Dropped):
                    break
            else:
                yield position, x

    def _grouping(
        self, node: Grouping[Any, Any, Any], at: Addresses, supplied: Iterator[Any], height: int
    ) -> Iterator[Row[Any]]:
        members = self._rows(node.source, members_of(node, at), supplied, height + 1)
        elements = (x for _, x in members)
        allocate = self.allocate if node is self._last else None
        for epoch, position in zip(at.epoch.tolist(), at.position.tolist(), strict=True):
            size = size_of_group(node, position)
            group = list(islice(elements, size))
            if not group or (node.drop_remainder and len(group) < node.n):
                return  # a stream ended
            try:
                y = node.gather(group, allocate)
            except Exception as error:
                raise OperatorFailed(height, epoch, position) from error
            yield position, y

    def _read(self, node: IndexedSource[Any], at: Addresses, height: int) -> Iterator[Row[Any]]:
        read = self._readers.get(height)
        if read is None:
            read = self._readers[height] = node.open()
        for epoch, position in zip(at.epoch.tolist(), at.position.tolist(), strict=True):
            try:
                x = read(position)
            except Exception as error:
                raise OperatorFailed(height, epoch, position) from error
            yield position, x


def size_of_group(node: Grouping[Any, Any, Any], position: int) -> int:
    """How many rows the group at this position has: fewer than ``n`` at the end of a pass."""
    length = node.source.length
    return node.n if length is None else min(node.n, length - position * node.n)


def members_of(node: Grouping[Any, Any, Any], at: Addresses) -> Addresses:
    """The addresses of the rows that these groups are made of."""
    position = (at.position[:, None] * node.n + np.arange(node.n)).ravel()
    epoch = np.repeat(at.epoch, node.n)
    if node.source.length is not None:
        inside = position < node.source.length
        position, epoch = position[inside], epoch[inside]
    return Addresses(epoch, position)


def base_addresses(node: AnyNode, base: AnyNode, at: Addresses) -> Addresses:
    """Where the elements of ``base`` stand that the elements of ``node`` are made of, in order."""
    while node is not base:
        if isinstance(node, Grouping):
            at = members_of(node, at)
        elif isinstance(node, Indexing):
            at = node.resolve(at)
        node = node.sources[0]
    return at


def failure_in(meaning: AnyNode, height: int, epoch: int, position: int) -> ElementError:
    """The error that names the operator that failed and the row its element came from."""
    node = meaning
    for _ in range(height):
        node = node.sources[0]
    return node.failure(epoch, position)

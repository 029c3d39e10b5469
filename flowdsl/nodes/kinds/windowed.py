"""Operators that make one element of several consecutive ones."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from math import gcd
from typing import Any, Generic

import numpy as np

from flowdsl.elements.preallocated import Allocate
from flowdsl.errors import ElementError, raise_with_cause
from flowdsl.nodes.base import (
    A,
    AnyNode,
    E,
    Indices,
    Node,
    PassFactory,
    Positions,
    Provenance,
    Row,
    U,
    cached_per_node,
)
from flowdsl.nodes.capabilities import (
    Buffering,
    Reshardable,
    Resumable,
    SourcePosition,
    Traceable,
    TracedReader,
    position_after_reshard,
    trace,
)
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.validation import POSITION_LIMIT, describe_group


@frozen_node
class Windowed(Traceable[U, E], Buffering[U, E], Generic[A, U, E]):
    """An operator that makes one element of ``n`` consecutive elements."""

    source: Node[A, E]
    n: int
    drop_remainder: bool

    @property
    def stride(self) -> int:
        """The number of elements between the starts of two consecutive groups."""
        return self.n

    @property
    def dilation(self) -> int:
        """The number of elements from each element of a group to the next one in it."""
        return 1

    @property
    def span(self) -> int:
        """The number of elements from the first to the last of a group of ``n``, inclusive."""
        return min((self.n - 1) * self.dilation + 1, POSITION_LIMIT)  # no pass is longer

    @property
    def holds(self) -> int:
        return self.span

    @property
    def looks_back(self) -> int | None:
        return max(0, self.span - self.stride)  # the elements that the next group has too

    @property
    def shares(self) -> bool:
        """True if an element may be in several groups, and so has to be read-only."""
        # Two groups share an element if a multiple of the stride is k * dilation, with k < n. The
        # least such k is stride // gcd.
        return self.stride // gcd(self.stride, self.dilation) < self.n

    @property
    def stacks(self) -> bool:
        """True if row ``i`` of a result is exactly the ``i``-th element of its group."""
        return False

    def group(self, size: int, allocate: Allocate | None = None) -> list[A]:
        """Return an empty list, to be extended by up to ``size`` rows and passed to ``gather``."""
        return []

    @abstractmethod
    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        """Make one element of a group; large arrays in it come from ``allocate``."""

    def open_views(self) -> Callable[[int, int], U] | None:
        """Return a reader of results that needs no groups; None if results need groups.

        It is called with an epoch and the position of a result.

        The reader returns None for a single result that has to be made of a group.
        """
        return None

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable

    def sizes(self, addresses: Indices) -> Positions:
        """The number of elements in each group at these addresses; the last may have fewer."""
        if self.source.length is None:
            return np.full_like(addresses.position, self.n)
        rows = self.source.length - addresses.position * self.stride
        return np.clip(-(-rows // self.dilation), 0, self.n)

    def made_of(self, addresses: Indices) -> Provenance | None:
        if not self.source.positions_are_contiguous:
            return None
        sizes = self.sizes(addresses)
        first = Indices(addresses.epoch, addresses.position * self.stride)
        rows = first.and_next(sizes, self.dilation)
        return Provenance(rows, np.zeros_like(rows.position), sizes)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read, first = TracedReader(sources[0]), 0  # the number of the first element in ``latest``
        for position, y in self.rows(epoch, [read]):
            while first < position * self.stride:
                read.latest.popleft()
                first += 1
            group = [x.places for _, x in islice(read.latest, 0, self.span, self.dilation)]
            yield position, trace(y, group, self.stacks)


class Batched(Windowed[A, U, E], Resumable[U, E], Reshardable[U, E], Generic[A, U, E]):
    """A windowed operator whose groups are consecutive and do not overlap."""

    @property
    @cached_per_node
    def length(self) -> int | None:
        rows = self.source.length
        if rows is None:
            return None
        return rows // self.n if self.drop_remainder else -(-rows // self.n)

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        saved = position * self.n  # in the source
        if saved_flow.length == position:  # the last group of a pass may be smaller
            saved = saved_flow.sources[0].length or saved
        in_source = position_after_reshard(self.source, saved_flow.sources[0], saved)
        if in_source is None:
            return None
        if in_source == self.source.length:
            return self.length
        return None if in_source % self.n else in_source // self.n

    def source_position(self, yielded: int) -> SourcePosition:
        return SourcePosition(ended_passes=0, position=yielded * self.n)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[U]]:
        rows, latest_positions = sources[0](epoch), deque[int](maxlen=self.n)
        elements: Iterator[A]
        if self.source.positions_are_contiguous:  # then an error computes them, at no cost here
            elements = (x for _, x in rows)
        else:
            elements = _noting_positions(rows, latest_positions)
        for position in count(yielded):
            group = self.group(self.n)
            group.extend(islice(elements, self.n))
            size = len(group)
            if not group or (self.drop_remainder and size < self.n):
                return
            try:
                y = self.gather(group)
            except BaseException as error:
                members = [*latest_positions][-size:]
                raise_with_cause(self._error_of_group(epoch, position, group, members), error)
            yield position, y

    def _error_of_group(
        self, epoch: int, position: int, group: Sequence[A], members: list[int]
    ) -> ElementError:
        """The error for a group; ``members`` are its positions in the source, if noted."""
        if not members:
            return self.error_at(epoch, position, describe_group(group))
        first = self.source.origin(epoch, min(members))
        last = self.source.origin(epoch, max(members))
        return ElementError(self.title, position, epoch, first.to(last), describe_group(group))


def _noting_positions(rows: Iterator[Row[A]], positions: deque[int]) -> Iterator[A]:
    """Yield elements, and append their positions to ``positions``."""
    for position, x in rows:
        positions.append(position)
        yield x

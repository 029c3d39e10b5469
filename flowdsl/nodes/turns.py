"""Sequences of turns among several parts that can be looked up at any position.

A sequence says which part has the turn at each position. ``RoundRobin`` and ``Proportional`` are
fixed; ``random_sequences`` has random ones.

Problem of ``Proportional``: each part gets its exact share of any prefix, up to rounding, and the
part at any position is computed without the positions before it. A greedy method, which gives the
turn to the part that is furthest behind, has to walk from the start. For two parts it is
arithmetic: the first part has ``round(n * share)`` of the first ``n`` turns. So the parts are the
leaves of a binary tree, a Huffman tree, whose nodes each divide the turns of their parts between
two halves. The tree keeps frequent parts near the root, so that few roundings add up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, count, cycle, repeat
from typing import TypeAlias

import attrs
import numpy as np

from flowdsl.nodes.base import Indices, Positions

_TOGETHER = 1024
"""Positions that are looked up together."""


class Turns(ABC):
    """An endless sequence of part numbers."""

    @abstractmethod
    def locate(self, position: Positions) -> tuple[Positions, Positions]:
        """For each position, the part there and the number of its occurrences before it.

        Argument and results have the shape ``(positions,)`` and the dtype ``int64``.
        """

    @abstractmethod
    def counts_before(self, position: int) -> Positions:
        """The count of each part before a position."""

    def parts(self) -> Iterator[int]:
        """Iterate over the sequence from its start."""
        for start in count(0, _TOGETHER):
            span = Indices.span(0, start, start + _TOGETHER)
            yield from self.locate(span.position)[0].tolist()

    def first(self, reached: Callable[[Positions], bool]) -> int:
        """The shortest prefix with counts that have ``reached`` something and keep it."""
        high = 1
        while not reached(self.counts_before(high)):
            high *= 2
        return bisect_left(range(high), True, key=lambda n: reached(self.counts_before(n)))


@attrs.frozen
class RoundRobin(Turns):
    """``block`` turns of each of ``n`` parts, again and again."""

    n: int
    block: int = 1

    def locate(self, position: Positions) -> tuple[Positions, Positions]:
        blocks, within = np.divmod(position, self.block)
        turn, part = np.divmod(blocks, self.n)
        return part, turn * self.block + within

    def counts_before(self, position: int) -> Positions:
        turns, rest = divmod(position, self.n * self.block)
        begun = np.clip(rest - np.arange(self.n) * self.block, 0, self.block)
        return turns * self.block + begun

    def parts(self) -> Iterator[int]:
        return cycle(chain.from_iterable(repeat(part, self.block) for part in range(self.n)))


@attrs.frozen
class Proportional(Turns):
    """Each part as often as its weight says, as evenly as possible."""

    weights: tuple[Fraction, ...]

    def locate(self, position: Positions) -> tuple[Positions, Positions]:
        part, rank = np.empty_like(position), np.empty_like(position)
        waiting = [(self._tree, np.arange(len(position)), position)]
        while waiting:  # a subtree, and positions among its turns
            tree, places, turns = waiting.pop()
            if isinstance(tree, int):
                part[places], rank[places] = tree, turns
                continue
            before = tree.lefts(turns)
            left = tree.lefts(turns + 1) > before
            waiting.append((tree.left, places[left], before[left]))
            waiting.append((tree.right, places[~left], (turns - before)[~left]))
        return part, rank

    def counts_before(self, position: int) -> Positions:
        found = np.empty(len(self.weights), np.int64)
        waiting = [(self._tree, np.array([position]))]
        while waiting:
            tree, n = waiting.pop()
            if isinstance(tree, int):
                found[tree] = n[0]
                continue
            lefts = tree.lefts(n)
            waiting += [(tree.left, lefts), (tree.right, n - lefts)]
        return found

    @property
    def _tree(self) -> _Tree:
        return _huffman(self.weights)


@attrs.frozen
class _Fork:
    """Divides turns between two subtrees."""

    left: _Tree
    right: _Tree
    share: Fraction
    """The share of the left."""

    def lefts(self, n: Positions) -> Positions:
        """How many of the first ``n`` turns are of the left: the share of ``n``, rounded."""
        of, whole = self.share.numerator, self.share.denominator
        cycles, rest = np.divmod(n, whole)
        lefts: Positions = cycles * of + (2 * rest * of + whole) // (2 * whole)
        return lefts


_Tree: TypeAlias = "_Fork | int"

_MAX_WHOLE = 2**30
"""The most turns after which a fork repeats itself: products of two fit an int64. A share that no
such fraction equals differs from it by less than one turn in 10**18."""


@lru_cache(maxsize=256)
def _huffman(weights: tuple[Fraction, ...]) -> _Tree:
    """The tree of parts with these weights."""
    heap: list[tuple[Fraction, int, _Tree]] = [(w, k, k) for k, w in enumerate(weights)]
    heapify(heap)
    while len(heap) > 1:  # the number of its first part decides between equals
        (light, i, right), (heavy, j, left) = heappop(heap), heappop(heap)
        if light == heavy:
            left, right = right, left
        share = (heavy / (heavy + light)).limit_denominator(_MAX_WHOLE)
        heappush(heap, (heavy + light, min(i, j), _Fork(left, right, share)))
    return heap[0][2]

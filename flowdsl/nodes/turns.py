"""Sequences of turns among several parts that can be looked up at any position.

A sequence says which part has the turn at each position. ``RoundRobin``, ``Cycle`` and ``Halved``
are fixed; ``random_sequences`` has random ones.

Problem of proportions: each part gets its exact share of any prefix, up to rounding, and the part
at any position is computed without the positions before it. A greedy method, which gives the turn
to a part that is behind, has to walk from the start. If the proportions are whole numbers, the
sequence repeats itself, and a ``Cycle`` walks through it once. If that would take too long, the
turns are ``Halved``. For two parts, the sequence is arithmetic: the first part has
``round(n * share)`` of the first ``n`` turns. For more parts, a Huffman tree has the parts as its
leaves, and each of its forks divides turns between two subtrees in this way. The tree keeps
frequent parts near the root, so that few roundings add up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, count, cycle, islice, repeat
from typing import TYPE_CHECKING, TypeAlias

import attrs
import numpy as np

from flowdsl.nodes.base import Indices, Positions

if TYPE_CHECKING:
    from fractions import Fraction

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

    def parts(self, start: int = 0) -> Iterator[int]:
        """Iterate over the sequence from a position."""
        for first in count(start, _TOGETHER):
            span = Indices.span(0, first, first + _TOGETHER)
            yield from self.locate(span.position)[0].tolist()

    def first(self, reached: Callable[[Positions], bool]) -> int:
        """The length of the shortest prefix with counts for which ``reached`` returns True.

        ``reached`` must return True for every longer prefix, too.
        """
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
        rounds, part = np.divmod(blocks, self.n)
        return part, rounds * self.block + within

    def counts_before(self, position: int) -> Positions:
        rounds, rest = divmod(position, self.n * self.block)
        in_this_round = np.clip(rest - np.arange(self.n) * self.block, 0, self.block)
        return rounds * self.block + in_this_round

    def parts(self, start: int = 0) -> Iterator[int]:
        turns = cycle(chain.from_iterable(repeat(part, self.block) for part in range(self.n)))
        return islice(turns, start % (self.n * self.block), None)


LONGEST_CYCLE = 1 << 16
"""A cycle of more turns is not walked through; one of this length takes a tenth of a second."""


def proportional(weights: tuple[Fraction, ...]) -> Turns:
    """Return turns in which each part is as frequent as its weight says.

    In any prefix, the count of a part differs from its share by less than 1, unless there are more
    than three parts and their cycle is longer than ``LONGEST_CYCLE``: then by at most 2.
    """
    scale = math.lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * scale) for weight in weights]
    divisor = math.gcd(*whole)
    if sum(whole) > LONGEST_CYCLE * divisor:
        return Halved(weights)
    return Cycle(tuple(weight // divisor for weight in whole))


@attrs.frozen
class Cycle(Turns):
    """Turns that repeat themselves: in each cycle, the number of a part's turns is its weight.

    R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32 (1980): for ``n`` parts,
    the count of a part differs from its share by at most ``1 - 1 / (2n - 2)``, which is the least
    that is possible for all weights.
    """

    weights: tuple[int, ...]

    def locate(self, position: Positions) -> tuple[Positions, Positions]:
        order, ranks = _one_cycle(self.weights)
        cycles, turn = np.divmod(position, len(order))
        part = order[turn]
        return part, cycles * np.array(self.weights)[part] + ranks[turn]

    def counts_before(self, position: int) -> Positions:
        order, _ = _one_cycle(self.weights)
        cycles, turns = divmod(position, len(order))
        counts = np.bincount(order[:turns], minlength=len(self.weights))
        return cycles * np.array(self.weights) + counts


@lru_cache(maxsize=64)
def _one_cycle(weights: tuple[int, ...]) -> tuple[Positions, Positions]:
    """The part that has each turn of a cycle, and how many turns it had before in the cycle.

    Of the parts that are behind their share, the one with the earliest deadline has the turn.
    """
    length = sum(weights)
    fineness = max(2 * len(weights) - 2, 1)  # of the theorem in ``Cycle``

    def release(part: int, rank: int) -> int:
        """The number of turns after which a part is behind, by at least ``1 / fineness``."""
        return -(-length * (rank * fineness + 1) // (weights[part] * fineness))

    def deadline(part: int, rank: int) -> int:
        """The number of turns after which a part is too far behind: 1 - 1 / fineness."""
        return length * ((rank + 1) * fineness - 1) // (weights[part] * fineness)

    order, ranks = np.empty(length, np.int64), np.empty(length, np.int64)
    counts = [0] * len(weights)
    waiting = [(release(part, 0), part) for part in range(len(weights)) if weights[part]]
    heapify(waiting)
    behind = list[tuple[int, int]]()  # a heap of (deadline, part)
    for turn in range(length):
        while waiting and waiting[0][0] <= turn + 1:
            _, part = heappop(waiting)
            heappush(behind, (deadline(part, counts[part]), part))
        _, part = heappop(behind)
        order[turn], ranks[turn] = part, counts[part]
        counts[part] += 1
        heappush(waiting, (release(part, counts[part]), part))
    return order, ranks


@attrs.frozen
class Halved(Turns):
    """Turns in which each part is as frequent as its weight says, by arithmetic."""

    weights: tuple[Fraction, ...]

    def locate(self, position: Positions) -> tuple[Positions, Positions]:
        part, rank = np.empty_like(position), np.empty_like(position)
        waiting = [(self._tree, np.arange(len(position)), position)]
        while waiting:  # a subtree, indices of results, and their positions in the subtree's turns
            tree, indices, turns = waiting.pop()
            if isinstance(tree, int):
                part[indices], rank[indices] = tree, turns
                continue
            before = tree.left_turns(turns)
            is_left = tree.left_turns(turns + 1) > before
            waiting.append((tree.left, indices[is_left], before[is_left]))
            waiting.append((tree.right, indices[~is_left], (turns - before)[~is_left]))
        return part, rank

    def counts_before(self, position: int) -> Positions:
        found = np.empty(len(self.weights), np.int64)
        waiting = [(self._tree, np.array([position]))]
        while waiting:
            tree, n = waiting.pop()
            if isinstance(tree, int):
                found[tree] = n[0]
                continue
            left_turns = tree.left_turns(n)
            waiting += [(tree.left, left_turns), (tree.right, n - left_turns)]
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
    """The share of the left subtree."""

    def left_turns(self, n: Positions) -> Positions:
        """The left subtree's number of the first ``n`` turns: the share of ``n``, rounded."""
        share, whole = self.share.numerator, self.share.denominator
        cycles, rest = np.divmod(n, whole)
        rounded: Positions = (2 * rest * share + whole) // (2 * whole)  # rest * share / whole
        return cycles * share + rounded


_Tree: TypeAlias = "_Fork | int"

_MAX_WHOLE = 2**30
"""The largest denominator of a share: products of two such numbers fit an int64. Rounding a share
to such a fraction changes it by less than one turn in 10**18."""


@lru_cache(maxsize=256)
def _huffman(weights: tuple[Fraction, ...]) -> _Tree:
    """The tree of parts with these weights."""
    heap: list[tuple[Fraction, int, _Tree]] = [(w, k, k) for k, w in enumerate(weights)]
    heapify(heap)
    while len(heap) > 1:  # among equal weights, the tree with the smallest part number comes first
        (light, i, right), (heavy, j, left) = heappop(heap), heappop(heap)
        if light == heavy:
            left, right = right, left
        share = (heavy / (heavy + light)).limit_denominator(_MAX_WHOLE)
        heappush(heap, (heavy + light, min(i, j), _Fork(left, right, share)))
    return heap[0][2]

"""Sequences of turns among several parts that can be looked up at any position.

A sequence says which part has the turn at each position. ``RoundRobin``, ``Cycle`` and ``Halved``
are fixed; ``random_sequences`` has random ones.

Problem of proportions: each part gets its exact share of any prefix, up to rounding, and the part
at any position is computed without the positions before it. A greedy method, which gives the turn
to a part that is behind, has to walk from the start. If the proportions are whole numbers, the
sequence repeats itself, and a ``Cycle`` walks through it once. A long one is ``Halved``: for two
parts, the sequence is arithmetic, as the first one has ``round(n * share)`` of the first ``n``
turns. So the parts are the leaves of a binary tree, a Huffman tree, whose nodes each divide the
turns of their parts between two halves. The tree keeps frequent parts near the root, so that few
roundings add up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, count, cycle, islice, repeat
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

    def parts(self, start: int = 0) -> Iterator[int]:
        """Iterate over the sequence from a position."""
        for first in count(start, _TOGETHER):
            span = Indices.span(0, first, first + _TOGETHER)
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

    def parts(self, start: int = 0) -> Iterator[int]:
        turns = cycle(chain.from_iterable(repeat(part, self.block) for part in range(self.n)))
        return islice(turns, start % (self.n * self.block), None)


LONGEST_CYCLE = 1 << 16
"""The most turns of a cycle that is walked through: that takes a tenth of a second."""


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
    """Turns that repeat themselves: each part has as many turns of a cycle as its weight.

    R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32 (1980): for ``n`` parts,
    the count of a part differs from its share by at most ``1 - 1 / (2n - 2)``, which is the least
    that is possible for all weights.
    """

    weights: tuple[int, ...]

    def locate(self, position: Positions) -> tuple[Positions, Positions]:
        order, ranks = _walked(self.weights)
        cycles, turn = np.divmod(position, len(order))
        part = order[turn]
        return part, cycles * np.array(self.weights)[part] + ranks[turn]

    def counts_before(self, position: int) -> Positions:
        order, _ = _walked(self.weights)
        cycles, turns = divmod(position, len(order))
        counts = np.bincount(order[:turns], minlength=len(self.weights))
        return cycles * np.array(self.weights) + counts


@lru_cache(maxsize=64)
def _walked(weights: tuple[int, ...]) -> tuple[Positions, Positions]:
    """The part that has each turn of a cycle, and the number of its turns before.

    Each turn goes to the part with the earliest deadline, of those that are behind their share.
    """
    whole = sum(weights)
    least = max(2 * len(weights) - 2, 1)  # the deviation is a multiple of its inverse

    def begin_of(part: int, rank: int) -> int:
        """The number of turns after which a part is behind, by at least ``1 / least``."""
        return -(-whole * (rank * least + 1) // (weights[part] * least))

    def end_of(part: int, rank: int) -> int:
        """The number of turns after which a part is too far behind."""
        return whole * ((rank + 1) * least - 1) // (weights[part] * least)

    order, ranks, counts = np.empty(whole, np.int64), np.empty(whole, np.int64), [0] * len(weights)
    waiting = [(begin_of(part, 0), part) for part in range(len(weights)) if weights[part]]
    heapify(waiting)
    behind = list[tuple[int, int]]()
    for turn in range(whole):
        while waiting and waiting[0][0] <= turn + 1:
            _, part = heappop(waiting)
            heappush(behind, (end_of(part, counts[part]), part))
        _, part = heappop(behind)
        order[turn], ranks[turn] = part, counts[part]
        counts[part] += 1
        heappush(waiting, (begin_of(part, counts[part]), part))
    return order, ranks


@attrs.frozen
class Halved(Turns):
    """Each part as often as its weight says, by arithmetic."""

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

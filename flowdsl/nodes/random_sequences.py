"""Random sequences of part numbers that can be looked up at any position.

Problem: ``mix`` and ``choose`` draw, for each position, the flow (part) from which the element
comes. Random access needs the part at any position, and how often that part occurs before it. The
naive way is to draw the sequence from its start, which costs time linear in the position.

So the sequence is drawn by a binary tree. A node has a range of positions and the count of each
part in it, and draws from a hypergeometric distribution how many of each are in its left half; a
leaf shuffles its parts. Every draw depends only on where in the tree it is, so every descent
produces the same sequence, in logarithmic time (Sanders et al., "Efficient Parallel Random
Sampling", ACM TOMS 2018).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.nodes.base import Positions
from flowdsl.nodes.randomness import generator
from flowdsl.nodes.turns import Turns

Counts: TypeAlias = tuple[int, ...]
"""The count of each part."""

LEAF = 1024
"""The number of positions in a leaf. More would make one look-up dearer, and the cache larger."""

MAX_ROWS_TO_MIX = 10**9
"""NumPy can draw hypergeometric numbers only from populations smaller than this."""

_DOUBLINGS = 19
"""The doublings of the block length of an ``Independent`` sequence, from ``LEAF``."""

_MAX_PER_BLOCK = LEAF << _DOUBLINGS
_LEAVES_HELD = 4096
"""Leaves in the cache, of 4 KiB each: four million positions, for a shuffle above the node."""

_HALVES_HELD = 1 << 16

_POSITIONS_PER_LIST = 16 * LEAF
"""Used by ``Mixed.positions_of`` if the lists of all positions fit in the cache."""

_LISTS_HELD = 512
"""Lists in the cache, of 32 KiB at most each: eight million positions."""


@attrs.frozen(repr=False)
class Draws(Turns):
    """A random sequence of part numbers, determined by its seed, salt and epoch."""

    seed: int
    salt: str
    epoch: int

    @abstractmethod
    def block_at(self, position: int) -> int:
        """The number of the block that contains a position; each block has its own tree."""

    @abstractmethod
    def span(self, block: int) -> tuple[int, int]:
        """The first position of a block, and its length."""

    @abstractmethod
    def counts(self, block: int) -> Counts:
        """The count of each part in a block."""

    def locate(self, position: Positions) -> tuple[Positions, Positions]:
        part, rank = np.empty_like(position), np.empty_like(position)
        leaf = position // LEAF
        order = np.argsort(leaf, kind="stable")
        for in_one_leaf in np.split(order, np.flatnonzero(np.diff(leaf[order])) + 1):
            if len(in_one_leaf):  # ``split`` makes one empty group of no positions
                parts, ranks, before = _leaf(self, int(leaf[in_one_leaf[0]]))
                within = position[in_one_leaf] % LEAF
                part[in_one_leaf] = parts[within]
                rank[in_one_leaf] = before[parts[within]] + ranks[within]
        return part, rank

    def position_of(self, part: int, rank: int) -> int:
        """The position of a part's occurrence number ``rank``, counted from 0."""
        block, counts = 0, self.counts(0)
        while rank >= counts[part]:
            rank -= counts[part]
            block, counts = block + 1, self.counts(block + 1)
        low, size = self.span(block)
        while size > LEAF:
            half = _half(size)
            left = _left(self, low, half, counts)
            if rank < left[part]:
                size, counts = half, left
            else:
                rank -= left[part]
                low, size, counts = low + half, size - half, _less(counts, left)
        return low + int(np.flatnonzero(_shuffled(self, low, counts) == part)[rank])

    def counts_before(self, position: int) -> Positions:
        parts, _, before = _leaf(self, position // LEAF)
        return before + np.bincount(parts[: position % LEAF], minlength=len(before))

    def parts(self, start: int = 0) -> Iterator[int]:
        first, within = divmod(start, LEAF)
        yield from _leaf(self, first)[0][within:].tolist()
        for leaf in count(first + 1):
            yield from _leaf(self, leaf)[0].tolist()


@attrs.frozen(repr=False)
class Independent(Draws):
    """An endless sequence: each position draws a part independently, with fixed probabilities."""

    weights: tuple[float, ...]

    def block_at(self, position: int) -> int:
        if position < 2 * _MAX_PER_BLOCK:
            return (position // LEAF).bit_length()
        return position // _MAX_PER_BLOCK + _DOUBLINGS

    def span(self, block: int) -> tuple[int, int]:
        if block == 0:
            return 0, LEAF
        if block <= _DOUBLINGS + 1:
            size = LEAF << block - 1  # as long as all earlier blocks: a short pass costs little
            return size, size
        return (block - _DOUBLINGS) * _MAX_PER_BLOCK, _MAX_PER_BLOCK

    def counts(self, block: int) -> Counts:
        return _multinomial(self, block)


@attrs.frozen(repr=False)
class Mixed(Draws):
    """A fixed count of each part, in an order drawn from all orders, which are equally likely.

    The counts add up to less than ``MAX_ROWS_TO_MIX``.
    """

    rows: Counts

    def block_at(self, position: int) -> int:
        return 0

    def span(self, block: int) -> tuple[int, int]:
        return 0, sum(self.rows)

    def counts(self, block: int) -> Counts:
        return self.rows

    def positions_of(self, part: int, rank: Positions) -> Positions:
        """``position_of`` for many ranks: the positions of these occurrences of a part."""
        found = np.empty_like(rank)
        order = np.argsort(rank, kind="stable")
        ranks = rank[order]
        total = sum(self.rows)
        fits_in_cache = total <= _POSITIONS_PER_LIST * _LISTS_HELD
        per_list = _POSITIONS_PER_LIST if fits_in_cache else LEAF
        waiting = [(0, total, self.rows, 0, 0, len(rank))]
        while waiting:  # a range, the part's occurrences before it, and the slice of ranks in it
            low, size, counts, before, begin, end = waiting.pop()
            if begin == end:
                continue
            if size <= per_list:
                offsets = _offsets(self, low, size, counts, part)
                found[order[begin:end]] = offsets[ranks[begin:end] - before] + np.int64(low)
                continue
            half = _half(size)
            left = _left(self, low, half, counts)
            before_right = before + left[part]
            cut = begin + int(np.searchsorted(ranks[begin:end], before_right))
            waiting.append((low, half, left, before, begin, cut))
            waiting.append((low + half, size - half, _less(counts, left), before_right, cut, end))
        return found


# Each draw has a unique number: for the halves of a range, twice the position of its middle,
# which no other range shares; for a block, twice the position of its start; for a leaf, one more
# than twice the position of its start.


@lru_cache(maxsize=_HALVES_HELD)
def _multinomial(draws: Independent, block: int) -> Counts:
    """Draw the count of each part in a block."""
    low, size = draws.span(block)
    rng = generator(draws.seed, draws.salt, draws.epoch, 2 * low)
    return tuple(rng.multinomial(size, draws.weights).tolist())


@lru_cache(maxsize=64)
def _prefixes(draws: Draws) -> list[Positions]:
    """The count of each part before each block, for the blocks requested so far."""
    return [np.zeros(len(draws.counts(0)), np.int64)]


def _counts_before_block(draws: Draws, block: int) -> Positions:
    prefixes = _prefixes(draws)
    while len(prefixes) <= block:
        prefixes.append(prefixes[-1] + draws.counts(len(prefixes) - 1))
    return prefixes[block]


@lru_cache(maxsize=_HALVES_HELD)
def _left(draws: Draws, low: int, half: int, counts: Counts) -> Counts:
    """The count of each part in the left half of a range."""
    rng = generator(draws.seed, draws.salt, draws.epoch, 2 * (low + half))
    return tuple(rng.multivariate_hypergeometric(counts, half, method="marginals").tolist())


def _shuffled(draws: Draws, low: int, counts: Counts) -> Positions:
    """The part at each position of a leaf."""
    rng = generator(draws.seed, draws.salt, draws.epoch, 2 * low + 1)
    return rng.permutation(np.repeat(np.arange(len(counts)), counts))


@lru_cache(maxsize=_LEAVES_HELD)
def _leaf(draws: Draws, number: int) -> tuple[NDArray[np.int16], NDArray[np.int16], Positions]:
    """The parts in a leaf, the rank of each in the leaf, and the count of each part before it."""
    block = draws.block_at(number * LEAF)
    low, size = draws.span(block)
    counts, before = draws.counts(block), _counts_before_block(draws, block).copy()
    while size > LEAF:
        half = _half(size)
        left = _left(draws, low, half, counts)
        if number * LEAF < low + half:
            size, counts = half, left
        else:
            before += left
            low, size, counts = low + half, size - half, _less(counts, left)
    parts = _shuffled(draws, low, counts).astype(np.int16)
    ranks = np.empty_like(parts)
    starts = np.cumsum(counts) - counts  # where each part begins once the parts are sorted
    ranks[np.argsort(parts, kind="stable")] = np.arange(size) - np.repeat(starts, counts)
    return parts, ranks, before


@lru_cache(maxsize=_LISTS_HELD)
def _offsets(draws: Mixed, low: int, size: int, counts: Counts, part: int) -> NDArray[np.int16]:
    """The offsets of a part's occurrences in a range."""
    offsets = np.flatnonzero(_drawn(draws, low, size, counts) == part)
    return offsets.astype(np.int16)


def _drawn(draws: Draws, low: int, size: int, counts: Counts) -> Positions:
    """The part at each position of a range."""
    if size <= LEAF:
        return _shuffled(draws, low, counts)
    half = _half(size)
    left = _left(draws, low, half, counts)
    right = _drawn(draws, low + half, size - half, _less(counts, left))
    return np.concatenate([_drawn(draws, low, half, left), right])


def _half(size: int) -> int:
    """The length of a range's left half: the largest 2**k leaves that are shorter than it."""
    return LEAF << ((size - 1) // LEAF).bit_length() - 1


def _less(counts: Counts, left: Counts) -> Counts:
    """The counts in the right half, from the counts in the range and in its left half."""
    return tuple(c - b for c, b in zip(counts, left, strict=True))
